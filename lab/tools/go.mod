module aquifer.storage/lab/tools

go 1.26.0
