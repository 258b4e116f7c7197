module aquifer.storage/lab/pause

go 1.26.0
