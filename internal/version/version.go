// Package version says which build of the relay this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// number is set by the linker for releases: -X github.com/jobrelay/relay/internal/version.number=v1.2.3.
var number string

// Info describes a build.
type Info struct {
	Version  string `json:"version"`  // "v1.2.3", or "devel"
	Revision string `json:"revision"` // commit, "" when unknown
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Time     string `json:"time"`     // of the commit, RFC 3339, "" when unknown
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get reads the build's description from the binary itself.
func Get() Info {
	info := Info{Version: number, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Revision = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			case "vcs.time":
				info.Time = s.Value
			}
		}
	}
	if info.Version == "" && ok && build.Main.Version != "" && build.Main.Version != "(devel)" {
		info.Version = build.Main.Version
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	return info
}

// String is the line that `relay version` prints.
func (i Info) String() string {
	s := "relay " + i.Version
	if i.Revision != "" {
		s += fmt.Sprintf(" (%.12s", i.Revision)
		if i.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + i.Go + " " + i.Platform
}
