package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// How the line is at the moment. Written by the owner into a file; `Number` shows which version is in force.
type line struct {
	Number  uint64  `json:"number"`
	DelayMs float64 `json:"delay_ms"`
	Loss    float64 `json:"loss"`
	Cut     bool    `json:"cut"`
}

// wide-area SETTINGS APPLIED DONE NAMESPACE=ADDRESS...: opens the tunnel wan0 in each namespace and carries packets between them by
// destination address, with the delay and loss that SETTINGS says. A packet for any other address is dropped.
//
// It starts over in each namespace to open its tunnel, and then holds all of them: no link, no route, no forwarding.
func wideArea(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: wide-area SETTINGS APPLIED DONE NAMESPACE=ADDRESS...")
	}
	done, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	ends := args[3:]
	if done > 0 {
		// This is the namespace that the step before entered: open its end.
		fd, err := openTunnel("wan0")
		if err != nil {
			return err
		}
		want := 100 + done
		if err := syscall.Dup3(fd, want, 0); err != nil {
			return err
		}
		if err := syscall.Close(fd); err != nil {
			return err
		}
	}
	if done < len(ends) {
		namespace, _, _ := strings.Cut(ends[done], "=")
		var keep []uintptr
		for n := 1; n <= done; n++ {
			keep = append(keep, uintptr(100+n))
		}
		again := append([]string{"wide-area", args[0], args[1], strconv.Itoa(done + 1)}, ends...)
		return continueIn(namespace, keep, again...)
	}
	return carry(args[0], args[1], ends)
}

func openTunnel(name string) (int, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], name)
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, errno
	}
	return fd, nil
}

type packet struct {
	due  time.Time
	data []byte
	to   *os.File
}

func carry(settings, applied string, ends []string) error {
	var now atomic.Pointer[line]
	now.Store(&line{})
	by := map[string]*os.File{}
	var tunnels []*os.File
	for n, end := range ends {
		_, address, _ := strings.Cut(end, "=")
		tunnel := os.NewFile(uintptr(100+n+1), address)
		by[address] = tunnel
		tunnels = append(tunnels, tunnel)
	}
	var failed = make(chan error, len(tunnels))
	for _, from := range tunnels {
		// One line for each direction, so that packets never overtake each other.
		queue := make(chan packet, 4096)
		go deliver(queue)
		go func() { failed <- take(from, by, &now, queue) }()
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-time.After(10 * time.Millisecond):
		}
		text, err := os.ReadFile(settings)
		if err != nil {
			return err
		}
		var wanted line
		if json.Unmarshal(text, &wanted) == nil && (wanted.Number != now.Load().Number) {
			now.Store(&wanted)
			if err := os.WriteFile(applied+".new", []byte(strconv.FormatUint(wanted.Number, 10)), 0o600); err != nil {
				return err
			}
			if err := os.Rename(applied+".new", applied); err != nil {
				return err
			}
		}
	}
}

func take(from *os.File, by map[string]*os.File, now *atomic.Pointer[line], queue chan<- packet) error {
	buffer := make([]byte, 65536)
	for {
		length, err := from.Read(buffer)
		if err != nil {
			return err
		}
		line := now.Load()
		if length < 20 || buffer[0]>>4 != 4 || line.Cut || rand.Float64() < line.Loss {
			continue
		}
		to, known := by[dotted(buffer[16:20])]
		if !known || to == from {
			continue
		}
		data := append([]byte(nil), buffer[:length]...)
		due := time.Now().Add(time.Duration(line.DelayMs * float64(time.Millisecond)))
		select {
		case queue <- packet{due, data, to}:
		default:
			// Full, as a real line may be.
		}
	}
}

func deliver(queue <-chan packet) {
	for next := range queue {
		time.Sleep(time.Until(next.due))
		// The other end may be down at the moment.
		_, _ = next.to.Write(next.data)
	}
}

func dotted(address []byte) string {
	parts := make([]string, len(address))
	for n, part := range address {
		parts[n] = strconv.Itoa(int(part))
	}
	return strings.Join(parts, ".")
}
