package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	driverName    = "efs.csi.aws.com"
	driverVersion = "lab"
)

// The node plugin: mounts volumes for kubelet.
type nodePlugin struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	node string
}

func plugin(args []string) error {
	set := flag.NewFlagSet("plugin", flag.ContinueOnError)
	endpoint := set.String("endpoint", "", "where to listen")
	set.Bool("logtostderr", true, "always so")
	set.Int("v", 0, "ignored")
	if err := set.Parse(args); err != nil {
		return err
	}
	node := os.Getenv("CSI_NODE_NAME")
	if node == "" {
		return errors.New("CSI_NODE_NAME is not set: without it there is no node to mount for")
	}
	socket, found := strings.CutPrefix(*endpoint, "unix:")
	if !found {
		return fmt.Errorf("the endpoint %q is not a unix socket", *endpoint)
	}
	server := grpc.NewServer()
	it := &nodePlugin{node: node}
	csi.RegisterIdentityServer(server, it)
	csi.RegisterNodeServer(server, it)
	return listen(server, "/"+strings.TrimLeft(socket, "/"))
}

// Serves on a socket until the container is told to end; then the socket is removed.
func listen(server *grpc.Server, socket string) error {
	// What a killed container left.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		server.GracefulStop()
	}()
	fmt.Println("listening on", socket)
	return server.Serve(listener)
}

func (p *nodePlugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: driverVersion}, nil
}

func (p *nodePlugin) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (p *nodePlugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (p *nodePlugin) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: p.node}, nil
}

func (p *nodePlugin) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (p *nodePlugin) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target, capability := request.GetTargetPath(), request.GetVolumeCapability()
	if target == "" || capability.GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "a file system is mounted at a target path, and one of the two was not named")
	}
	switch capability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
	default:
		return nil, status.Errorf(codes.InvalidArgument, "the access mode %s is not supported", capability.GetAccessMode().GetMode())
	}
	if err := checkAttributes(request.GetVolumeContext()); err != nil {
		return nil, err
	}
	source, err := parseHandle(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	flags, err := parseOptions(capability.GetMount().GetMountFlags(), source.AccessPoint)
	if err != nil {
		return nil, err
	}
	if request.GetReadonly() {
		flags |= syscall.MS_RDONLY
	}
	if err := mount(source, target, flags); err != nil {
		return nil, status.Errorf(codes.Internal, "cannot mount %s at %s: %v", request.GetVolumeId(), target, err)
	}
	fmt.Println("mounted", request.GetVolumeId(), "at", target)
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *nodePlugin) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := request.GetTargetPath()
	if target == "" {
		return nil, status.Error(codes.InvalidArgument, "no target path was named")
	}
	if err := unmount(target); err != nil {
		return nil, status.Errorf(codes.Internal, "cannot unmount %s: %v", target, err)
	}
	fmt.Println("unmounted", target)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
