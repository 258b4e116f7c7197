package main

import (
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Options that change a mount here as they do on a real node.
var flags = map[string]uintptr{
	"ro": syscall.MS_RDONLY, "noatime": syscall.MS_NOATIME, "nodiratime": syscall.MS_NODIRATIME, "relatime": syscall.MS_RELATIME,
	"nodev": syscall.MS_NODEV, "nosuid": syscall.MS_NOSUID, "noexec": syscall.MS_NOEXEC, "sync": syscall.MS_SYNCHRONOUS,
}

// Options of the mount helper and of NFS that are about the way to the servers, which is another one here. Those that end in "="
// have a value.
var harmless = strings.Fields(`
	rw async atime diratime dev suid exec _netdev nofail
	tls iam noocsp ocsp az= region= mounttargetip= awsprofile= crossaccount
	hard soft softreval intr nointr timeo= retrans= retry= rsize= wsize= vers= nfsvers= minorversion= nconnect= port= proto= sec= resvport noresvport
	ac noac actimeo= acregmin= acregmax= acdirmin= acdirmax= lookupcache= cto nocto fsc nofsc
`)

// The flags of a mount with these options. What neither the mount helper nor NFS knows is refused, as they would.
func parseOptions(options []string, accessPoint string) (uintptr, error) {
	refuse := func(option, why string) (uintptr, error) {
		return 0, status.Errorf(codes.InvalidArgument, "mount option %q: %s", option, why)
	}
	var all uintptr
	for _, option := range options {
		option = strings.ToLower(option)
		name, value, hasValue := strings.Cut(option, "=")
		flag, isFlag := flags[option]
		switch {
		case isFlag:
			all |= flag
		case name == "accesspoint" && hasValue:
			if value != accessPoint {
				return refuse(option, "it is not the access point of the volume handle")
			}
		case hasValue && contains(harmless, name+"="), !hasValue && contains(harmless, name):
		default:
			return refuse(option, "an incorrect mount option was specified")
		}
	}
	return all, nil
}

func contains(list []string, word string) bool {
	for _, one := range list {
		if one == word {
			return true
		}
	}
	return false
}
