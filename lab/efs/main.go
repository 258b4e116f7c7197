// A stand-in for AWS EFS and for its CSI driver, in one program: the service that holds file systems, and the three containers of the
// driver's node plugin.
//
// On the machine it is told what to be: `efs service DIRECTORY SOCKET...`. In a container nothing tells it, because the DaemonSet gives
// arguments and no command, as to the real images. It is then the one whose own flag it finds, and refuses the flags of the others.
package main

import (
	"fmt"
	"os"
	"strings"
)

type role struct {
	name string
	// The flag that no other role has.
	flag string
	run  func(args []string) error
}

var roles = []role{
	{"plugin", "endpoint", plugin},
	{"registrar", "kubelet-registration-path", registrar},
	{"liveness", "health-port", liveness},
}

func main() {
	name, run, args := chosen(os.Args[1:])
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: efs service DIRECTORY SOCKET..., or the flags of a container of the EFS driver's node plugin")
		os.Exit(2)
	}
	if err := run(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func chosen(args []string) (string, func([]string) error, []string) {
	if len(args) > 0 && args[0] == "service" {
		return "service", service, args[1:]
	}
	if len(args) > 0 && args[0] == serveCommand {
		return serveCommand, serve, args[1:]
	}
	for _, role := range roles {
		for _, arg := range args {
			if strings.HasPrefix(arg, "--"+role.flag+"=") {
				return role.name, role.run, args
			}
		}
	}
	return "", nil, nil
}
