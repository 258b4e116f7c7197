package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// put FILE BYTES SEED: writes a file of that size whose content follows from the seed, and prints its checksum.
func put(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: put FILE BYTES SEED")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(args[2]))).Read(content)
	file, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	fmt.Printf("%x\n", sha256.Sum256(content))
	return file.Close()
}

// sum FILE: prints its checksum.
func sum(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: sum FILE")
	}
	file, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	fmt.Printf("%x\n", hash.Sum(nil))
	return nil
}

// list DIRECTORY: prints owner, permissions and name of all that is in it, and of itself as ".".
func list(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: list DIRECTORY")
	}
	entries, err := os.ReadDir(args[0])
	if err != nil {
		return err
	}
	names := []string{"."}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(args[0], name))
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		fmt.Printf("%d:%d %04o %s\n", owner.Uid, owner.Gid, info.Mode().Perm(), name)
	}
	return nil
}

const (
	blocks    = 16
	blockSize = 4096
)

// A file that is used all the time, and what it should hold.
type kept struct {
	file *os.File
	want []byte
}

// keep DIRECTORY...: uses a file in each directory without end, and fails at the first error. The file is named after the host. In each
// round it writes to a part of the file, reads and compares all of it, and makes and removes another one. The file stays open all the
// time, the other one is opened anew. Prints every second how many rounds it did, and how long the longest took.
func keep(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: keep DIRECTORY...")
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	var all []kept
	for _, dir := range args {
		file, err := os.Create(filepath.Join(dir, host))
		if err != nil {
			return err
		}
		defer file.Close()
		all = append(all, kept{file, make([]byte, blocks*blockSize)})
	}
	var longest time.Duration
	var said time.Time
	for n := 0; ; n++ {
		began := time.Now()
		for _, one := range all {
			if err := one.round(n); err != nil {
				return fmt.Errorf("round %d: %w", n, err)
			}
		}
		longest = max(longest, time.Since(began))
		if time.Since(said) >= time.Second {
			fmt.Printf("%d rounds, the longest %d ms\n", n+1, longest.Milliseconds())
			said = time.Now()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (k kept) round(n int) error {
	at := n % blocks * blockSize
	part := k.want[at : at+blockSize]
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(strconv.Itoa(n)))).Read(part)
	if _, err := k.file.WriteAt(part, int64(at)); err != nil {
		return err
	}
	if err := k.file.Sync(); err != nil {
		return err
	}
	have := make([]byte, min(n+1, blocks)*blockSize)
	if _, err := k.file.ReadAt(have, 0); err != nil {
		return err
	}
	if !bytes.Equal(have, k.want[:len(have)]) {
		return fmt.Errorf("%s does not hold what was written", k.file.Name())
	}
	return another(k.file.Name()+".new", part)
}

// Writes a file, reads it and removes it.
func another(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, content) {
		return fmt.Errorf("%s does not hold what was written", path)
	}
	return os.Remove(path)
}
