package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Where kubelet looks for plugins, as the container sees it.
const registrationDir = "/registration"

// Tells kubelet where the plugin listens.
type registrarServer struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func registrar(args []string) error {
	set := flag.NewFlagSet("registrar", flag.ContinueOnError)
	address := set.String("csi-address", "/run/csi/socket", "where the plugin listens, in this container")
	endpoint := set.String("kubelet-registration-path", "", "where it listens, for kubelet")
	set.Int("v", 0, "ignored")
	if err := set.Parse(args); err != nil {
		return err
	}
	name, err := nameOf(*address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrarServer{name: name, endpoint: *endpoint})
	return listen(server, fmt.Sprintf("%s/%s-reg.sock", registrationDir, name))
}

func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// The plugin's own name for itself. It may start later than this.
func nameOf(address string) (string, error) {
	plugin, err := connect(address)
	if err != nil {
		return "", err
	}
	defer plugin.Close()
	within, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := csi.NewIdentityClient(plugin).GetPluginInfo(within, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	if info.GetName() == "" {
		return "", errors.New("the plugin has no name")
	}
	return info.GetName(), nil
}

func (r *registrarServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// A plugin that kubelet refused must be started again, so that it is asked once more.
func (r *registrarServer) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		fmt.Fprintln(os.Stderr, "kubelet refused the plugin:", status.GetError())
		os.Exit(1)
	}
	fmt.Println("kubelet has registered the plugin")
	return &registration.RegistrationStatusResponse{}, nil
}
