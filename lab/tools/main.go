// Small programs of the lab in one: the ways between network namespaces, and for pods a client, a server, and users of files.
package main

import (
	"fmt"
	"os"
)

var commands = map[string]func(args []string) error{
	"relay":     relay,
	"wide-area": wideArea,
	"serve":     serve,
	"get":       get,
	"lookup":    lookup,
	"wait":      wait,
	"put":       put,
	"sum":       sum,
	"list":      list,
	"keep":      keep,
}

func main() {
	if len(os.Args) > 1 {
		if command, known := commands[os.Args[1]]; known {
			if err := command(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: tools relay|wide-area|serve|get|lookup|wait|put|sum|list|keep ...")
	os.Exit(2)
}
