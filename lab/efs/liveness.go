package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Answers whether the plugin answers.
func liveness(args []string) error {
	set := flag.NewFlagSet("liveness", flag.ContinueOnError)
	address := set.String("csi-address", "/run/csi/socket", "where the plugin listens")
	port := set.Int("health-port", 9808, "where to answer")
	set.Int("v", 0, "ignored")
	if err := set.Parse(args); err != nil {
		return err
	}
	plugin, err := connect(*address)
	if err != nil {
		return err
	}
	defer plugin.Close()
	identity := csi.NewIdentityClient(plugin)
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		within, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if _, err := identity.Probe(within, &csi.ProbeRequest{}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(fmt.Sprintf(":%d", *port), nil) }()
	select {
	case err := <-failed:
		return err
	case <-signals:
		return nil
	}
}
