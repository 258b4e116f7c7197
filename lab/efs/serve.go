package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	serveCommand = "serve"
	// What the process says when it serves.
	served = "served"
	// Where it finds the mount's device and says how it goes; 0 to 2 are the usual ones.
	deviceNumber, sayingNumber = 3, 4
)

// serve UID GID DIRECTORY...: serves one mount. Each directory is looked up within the one before and is then all that this process can
// see, links and dots included. What is done through the mount is done by this process as this user, whoever asks: the kernel judges it,
// as a server of EFS does for an access point. User 0 stands for no access point: then the kernel has judged by the user who asks.
func serve(args []string) error {
	saying := os.NewFile(sayingNumber, "saying")
	server, err := serving(args)
	if err != nil {
		fmt.Fprint(saying, err)
		saying.Close()
		return err
	}
	fmt.Fprint(saying, served)
	saying.Close()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server()
	return nil
}

// Prepares to serve; what it gives waits until the mount is gone.
func serving(args []string) (func(), error) {
	if len(args) < 3 {
		return nil, errors.New("usage: serve UID GID DIRECTORY...")
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	for _, dir := range args[2:] {
		if err := syscall.Chroot(dir); err != nil {
			return nil, fmt.Errorf("cannot enter %s: %w", dir, err)
		}
		if err := os.Chdir("/"); err != nil {
			return nil, err
		}
	}
	// Who asks has applied their own.
	syscall.Umask(0)
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return nil, err
	}
	loopback, err := fs.NewLoopbackRoot("/")
	if err != nil {
		return nil, err
	}
	// No times for caches: what one node writes the others see. Splicing would need /dev/null, which cannot be seen any more.
	options := &fs.Options{MountOptions: fuse.MountOptions{DisableSplice: true}}
	server, err := fs.Mount(fmt.Sprintf("/dev/fd/%d", deviceNumber), &node{loopback.(*fs.LoopbackNode)}, options)
	if err != nil {
		return nil, err
	}
	return server.Wait, nil
}

// A file as this process may use it.
type node struct{ *fs.LoopbackNode }

func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{child.(*fs.LoopbackNode)}
}

// Whether this process may: who asks does not matter.
func (n *node) Access(_ context.Context, mask uint32) syscall.Errno {
	path := filepath.Join("/", n.Path(n.Root()))
	return fs.ToErrno(unix.Access(path, mask))
}
