// Small programs of the lab in one: the ways between network namespaces, and a client and server for pods.
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
	fmt.Fprintln(os.Stderr, "usage: tools relay|wide-area|serve|get|lookup|wait ...")
	os.Exit(2)
}
