package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// What the file systems are, as the owner of the service wrote it into described.json. It is read at every mount.
type description struct {
	FileSystems map[string]struct {
		AccessPoints map[string]accessPoint `json:"accessPoints"`
	} `json:"fileSystems"`
}

// An access point: its user does whatever is done through it, and its root directory is all that is seen through it.
type accessPoint struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Root string `json:"root"`
	// How the root directory is made when it is not there, as four octal digits. Without it nothing is made, and the mount fails.
	Permissions string `json:"permissions"`
}

// service DIRECTORY SOCKET...: holds the file systems, each in a directory of its own, and answers for their mounts. There is a socket
// for each node. Ends, with all that it answers for, when its standard input does.
func service(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: service DIRECTORY SOCKET...")
	}
	// Its reading end is the standard input of all that is started here: they end with this process, however that ends.
	lifeline, holder, err := os.Pipe()
	if err != nil {
		return err
	}
	defer holder.Close()
	failed := make(chan error, len(args))
	for _, socket := range args[1:] {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return err
		}
		go func() { failed <- accept(listener, args[0], lifeline) }()
	}
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		failed <- nil
	}()
	return <-failed
}

func accept(listener *net.UnixListener, dir string, lifeline *os.File) error {
	for {
		node, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		go func() {
			defer node.Close()
			if err := attend(node, dir, lifeline); err != nil {
				fmt.Fprintln(os.Stderr, err)
				_ = json.NewEncoder(node).Encode(verdict{err.Error()})
			}
		}()
	}
}

// One mount: the node says what it wants, hears that it may have it, mounts, and gives the mount's device.
func attend(node *net.UnixConn, dir string, lifeline *os.File) error {
	line, err := bufio.NewReader(node).ReadBytes('\n')
	if err != nil {
		return err
	}
	var wanted source
	if err := json.Unmarshal(line, &wanted); err != nil {
		return err
	}
	arguments, err := admit(dir, wanted)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(node).Encode(verdict{}); err != nil {
		return err
	}
	device, err := receive(node)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := start(arguments, device, lifeline); err != nil {
		return fmt.Errorf("%s:%s:%s cannot be served: %w", wanted.FileSystem, wanted.Path, wanted.AccessPoint, err)
	}
	return json.NewEncoder(node).Encode(verdict{})
}

// Makes the root directories of access points one at a time.
var making sync.Mutex

// The arguments with which a mount is served, or why there can be none.
func admit(dir string, wanted source) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "described.json"))
	if err != nil {
		return nil, err
	}
	var all description
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	fileSystem, known := all.FileSystems[wanted.FileSystem]
	if !known {
		return nil, fmt.Errorf("there is no file system %s", wanted.FileSystem)
	}
	top := filepath.Join(dir, wanted.FileSystem)
	if wanted.AccessPoint == "" {
		return []string{"0", "0", top, wanted.Path}, nil
	}
	point, known := fileSystem.AccessPoints[wanted.AccessPoint]
	if !known {
		return nil, fmt.Errorf("the file system %s has no access point %s", wanted.FileSystem, wanted.AccessPoint)
	}
	making.Lock()
	defer making.Unlock()
	if err := makeRoot(filepath.Join(top, filepath.Clean("/"+point.Root)), point); err != nil {
		return nil, fmt.Errorf("the root directory of %s: %w", wanted.AccessPoint, err)
	}
	return []string{strconv.Itoa(point.UID), strconv.Itoa(point.GID), top, filepath.Clean("/" + point.Root), wanted.Path}, nil
}

func makeRoot(root string, point accessPoint) error {
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) || point.Permissions == "" {
		return err
	}
	permissions, err := strconv.ParseUint(point.Permissions, 8, 32)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	// As the mode is one thing to mkdir and another to the process's umask.
	if err := os.Chmod(root, os.FileMode(permissions)); err != nil {
		return err
	}
	return os.Chown(root, point.UID, point.GID)
}

// Takes a file from the other end of a socket.
func receive(from *net.UnixConn) (*os.File, error) {
	letter, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	_, length, _, _, err := from.ReadMsgUnix(letter, rights)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:length])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("the node gave up before it had mounted")
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "mount"), nil
}

// Starts the process that serves one mount, and waits until it does.
func start(arguments []string, device, lifeline *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words, saying, err := os.Pipe()
	if err != nil {
		return err
	}
	defer words.Close()
	command := exec.Command(self, append([]string{serveCommand}, arguments...)...)
	command.Stdin, command.Stderr = lifeline, os.Stderr
	command.ExtraFiles = []*os.File{device, saying}
	err = command.Start()
	saying.Close()
	if err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	said, err := io.ReadAll(words)
	if err != nil {
		return err
	}
	if string(said) != served {
		return errors.New(string(said))
	}
	return nil
}
