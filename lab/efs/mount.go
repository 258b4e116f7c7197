package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// The way from a node to the service; a directory of the node that the DaemonSet mounts.
const serviceSocket = "/var/run/efs/lab.sock"

// Mounts what a volume handle names. A mount is the node's and the service answers for it: neither needs this process afterwards.
func mount(from source, target string, flags uintptr) error {
	if mounted, err := isMounted(target); err != nil || mounted {
		return err
	}
	service, err := net.Dial("unix", serviceSocket)
	if err != nil {
		return fmt.Errorf("the file systems cannot be reached: %w", err)
	}
	defer service.Close()
	answers := bufio.NewReader(service)
	if err := json.NewEncoder(service).Encode(from); err != nil {
		return err
	}
	if err := answer(answers); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device.Fd())
	if from.AccessPoint == "" {
		// Users are who they are, and the kernel judges them. With an access point the service does, because all are its user.
		options += ",default_permissions"
	}
	if err := syscall.Mount(from.FileSystem+":"+from.Path, target, "fuse.efs", flags, options); err != nil {
		return err
	}
	_, _, err = service.(*net.UnixConn).WriteMsgUnix([]byte{0}, syscall.UnixRights(int(device.Fd())), nil)
	if err == nil {
		err = answer(answers)
	}
	if err != nil {
		_ = syscall.Unmount(target, syscall.MNT_DETACH)
		_ = os.Remove(target)
	}
	return err
}

// What the service says: nothing when all is well.
type verdict struct {
	Error string `json:"error"`
}

func answer(from *bufio.Reader) error {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the service of the file systems does not answer: %w", err)
	}
	var it verdict
	if err := json.Unmarshal(line, &it); err != nil {
		return err
	}
	if it.Error != "" {
		return errors.New(it.Error)
	}
	return nil
}

func unmount(target string) error {
	mounted, err := isMounted(target)
	if err != nil {
		return err
	}
	if mounted {
		if err := syscall.Unmount(target, 0); err != nil {
			return err
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func isMounted(target string) (bool, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for _, line := range strings.Split(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == target {
			return true, nil
		}
	}
	return false, nil
}
