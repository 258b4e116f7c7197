package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

// serve ADDRESS: answers every request with the name of the host, and logs who asked.
func serve(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: serve ADDRESS")
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s asked for %s\n", r.RemoteAddr, r.URL.Path)
		fmt.Fprintln(w, name)
	}))
}

// get URL: prints the answer, or fails within five seconds.
func get(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: get URL")
	}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// lookup NAME: prints the addresses.
func lookup(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: lookup NAME")
	}
	within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(within, args[0])
	sort.Strings(addresses)
	fmt.Println(strings.Join(addresses, " "))
	return err
}

// wait: does nothing until it gets a signal to end.
func wait([]string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	return nil
}
