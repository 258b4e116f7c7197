package main

import (
	"path"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a volume handle names.
type source struct {
	FileSystem  string `json:"fileSystem"`
	Path        string `json:"path"`
	AccessPoint string `json:"accessPoint"`
}

// Reads `[efs:]fs-ID[:path[:fsap-ID]]`, by the rules of the real driver.
func parseHandle(handle string) (source, error) {
	refuse := func(why string) (source, error) {
		return source{}, status.Errorf(codes.InvalidArgument, "volume handle %q: %s", handle, why)
	}
	parts := strings.Split(strings.TrimPrefix(handle, "efs:"), ":")
	if len(parts) > 3 {
		return refuse("it has more than three parts")
	}
	parts = append(parts, "", "")
	if !isID(parts[0], "fs-") {
		return refuse("it does not begin with a file system, such as fs-0123456789abcdef0")
	}
	if parts[2] != "" && !isID(parts[2], "fsap-") {
		return refuse("its third part is not an access point, such as fsap-0123456789abcdef0")
	}
	return source{FileSystem: parts[0], Path: path.Clean("/" + parts[1]), AccessPoint: parts[2]}, nil
}

func isID(text, prefix string) bool {
	digits, found := strings.CutPrefix(text, prefix)
	return found && len(digits) >= 8 && len(digits) <= 40 && strings.Trim(digits, "0123456789abcdef") == ""
}

// Attributes of a volume that the real driver takes; it refuses all others.
func checkAttributes(attributes map[string]string) error {
	for name, value := range attributes {
		switch strings.ToLower(name) {
		case "encryptintransit", "crossaccount":
			if _, err := strconv.ParseBool(value); err != nil {
				return status.Errorf(codes.InvalidArgument, "volume attribute %s is %q, neither true nor false", name, value)
			}
		case "mounttargetip", "mounttargetipmap", "storage.kubernetes.io/csiprovisioneridentity":
		default:
			return status.Errorf(codes.InvalidArgument, "volume attribute %s is not supported", name)
		}
	}
	return nil
}
