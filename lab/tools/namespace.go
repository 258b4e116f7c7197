package main

import (
	"os"
	"os/exec"
	"syscall"
)

// Becomes the same program in another network namespace. Files whose numbers are in `keep` stay open: a socket or
// tunnel belongs for ever to the namespace that it was made in, which is how one process reaches two.
func continueIn(namespace string, keep []uintptr, args ...string) error {
	for _, fd := range keep {
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0); errno != 0 {
			return errno
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(nsenter, append([]string{"nsenter", "--net=" + namespace, "--", self}, args...), os.Environ())
}
