package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

// relay LISTEN NAMESPACE TARGET [OWNER]: accepts here, connects there. Nothing else passes: there is no route between the two.
// OWNER is not read; it shows whose relay this is in a list of processes.
func relay(args []string) error {
	if len(args) >= 3 && args[0] == "--on" {
		fd, err := strconv.ParseUint(args[1], 10, 16)
		if err != nil {
			return err
		}
		listener, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
		if err != nil {
			return err
		}
		return pass(listener, args[2])
	}
	if len(args) < 3 {
		return errors.New("usage: relay LISTEN NAMESPACE TARGET")
	}
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	again := append([]string{"relay", "--on", strconv.Itoa(int(file.Fd()))}, args[2:]...)
	return continueIn(args[1], []uintptr{file.Fd()}, again...)
}

func pass(listener net.Listener, target string) error {
	for {
		from, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer from.Close()
			to, err := net.DialTimeout("tcp", target, 5*time.Second)
			if err != nil {
				return
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, to)
			_ = from.(*net.TCPConn).CloseWrite()
		}()
	}
}
