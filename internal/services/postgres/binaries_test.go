package postgres

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulikunitz/xz"
)

func TestDownloadChecksTheContent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/build" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte("content"))
	}))
	defer server.Close()
	sum := sha256.Sum256([]byte("content"))
	for _, c := range []struct{ name, path, sum, want string }{
		{"right", "/build", hex.EncodeToString(sum[:]), ""},
		{"tampered with", "/build", strings.Repeat("0", 64), "SHA-256"},
		{"missing", "/other", hex.EncodeToString(sum[:]), "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := download(t.Context(), server.URL+c.path, filepath.Join(t.TempDir(), "file"), c.sum, slog.New(slog.DiscardHandler))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("download: got error %v, want %q", err, c.want)
			}
		})
	}
}

func TestProgressTellsHowFarADownloadHasCome(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := &progress{from: bytes.NewReader(make([]byte, 3<<20)), total: 4 << 20, log: slog.New(slog.NewTextHandler(&log, nil)), next: time.Now().Add(-time.Second)}
	if _, err := p.Read(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "mib=3 of_mib=4") {
		t.Errorf("log: got %q, want mib=3 of_mib=4", got)
	}
}

func TestExtractStaysInItsFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		entries []tar.Header
		refused bool
	}{
		{"plain", []tar.Header{{Name: "bin/postgres", Mode: 0o755}, {Name: "lib/a.so", Typeflag: tar.TypeSymlink, Linkname: "b.so"}}, false},
		{"parent folder", []tar.Header{{Name: "../evil"}}, true},
		{"absolute", []tar.Header{{Name: "/evil"}}, true},
		{"through a link", []tar.Header{{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/"}, {Name: "out/tmp/evil"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := extract(jar(t, dir, c.entries), dir)
			if (err != nil) != c.refused {
				t.Errorf("extract: got error %v, want refused %t", err, c.refused)
			}
			if info, err := os.Stat(filepath.Join(dir, "bin/postgres")); !c.refused && (err != nil || info.Mode().Perm()&0o100 == 0) {
				t.Errorf("bin/postgres: got %v, %v, want an executable file", info, err)
			}
		})
	}
}

// jar writes an archive as the repository serves them: a zip with a compressed tar in it.
func jar(t *testing.T, dir string, entries []tar.Header) string {
	t.Helper()
	path := filepath.Join(dir, "archive.jar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	outer := zip.NewWriter(file)
	inner, err := outer.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := xz.NewWriter(inner)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(packed)
	for _, header := range entries {
		if header.Mode == 0 {
			header.Mode = 0o644
		}
		if err := archive.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
	}
	for _, closer := range []interface{ Close() error }{archive, packed, outer} {
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
