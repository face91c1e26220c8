package postgres

import (
	"archive/tar"
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/jobrelay/relay/internal/services/host"
)

// Version is the Postgres that runs unless Options says otherwise; Oldest is the oldest one that relay supports.
const (
	Version = "18.4"
	Oldest  = "15.18"
)

// repository serves the builds of the zonky project: Postgres servers cut down to what a private one needs.
const repository = "https://repo1.maven.org/maven2/io/zonky/test/postgres"

// builds are the archives that we trust, by platform and version, with their SHA-256.
var builds = map[string]string{
	"linux-amd64-18.4":         "401d4e69baba9072d3772607710df0d47b39a7632c6b01b2a5f5d85a9514e212",
	"linux-amd64-alpine-18.4":  "fe42b1e2a60eb4c50f6859bf17e933fd87f6ad701a1e72ac54070a67acc58e14",
	"linux-arm64v8-18.4":       "a9ec284923b9a7d2db41509bfb88c3d0eeb9f4aa5e2b29ea0aac5e8dbaf4c335",
	"darwin-amd64-18.4":        "68381ed1488edd337345c6c4bc6ae0c823832a4dd7af8b04656ee5c218c291b5",
	"darwin-arm64v8-18.4":      "ab698c4486a795d2aa8a158b3a41e1201a77e7ff72a6255094cd5900080853c2",
	"linux-amd64-15.18":        "6490649298abbe834a969b57df53e66e056f76894054a8f32f7a56f33abe0087",
	"linux-amd64-alpine-15.18": "b0ffa33118c9cd0dc992f6709824b9a2fa48991ae54de8a79feb846c1603ae0a",
	"darwin-amd64-15.18":       "bf4ca4521474ab0ef31672de5e48f194a423770f1f668b0356bb69e166253707",
}

// platform is how the builds call this machine; musl needs builds of its own.
func platform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		arch += "-alpine"
	}
	return runtime.GOOS + "-" + arch
}

// binaries returns the folder that holds bin/postgres, from the cache or, once, from the repository.
func binaries(ctx context.Context, cache, version string, log *slog.Logger) (string, error) {
	build := platform() + "-" + version
	sum, known := builds[build]
	if !known {
		major, _, _ := strings.Cut(version, ".")
		if system := "/usr/lib/postgresql/" + major; isFile(system + "/bin/postgres") {
			return system, nil
		}
		return "", fmt.Errorf("get Postgres %s: there is no build for %s; install PostgreSQL %s or use a server of your own", version, platform(), major)
	}
	return host.Fill(ctx, cache, "postgres-"+build, func(dir string) error {
		log.Info("downloading Postgres, once", "version", version, "to", cache)
		begin := time.Now()
		archive := filepath.Join(dir, "archive.jar")
		if err := download(ctx, buildURL(version), archive, sum, log); err != nil {
			return fmt.Errorf("download Postgres %s: %w", version, err)
		}
		if err := extract(archive, dir); err != nil {
			return fmt.Errorf("extract Postgres %s: %w", version, err)
		}
		log.Info("Postgres is downloaded", "version", version, "took", time.Since(begin).Round(time.Millisecond))
		return os.Remove(archive)
	})
}

func buildURL(version string) string {
	name := "embedded-postgres-binaries-" + platform()
	return fmt.Sprintf("%s/%s/%s.0/%s-%s.0.jar", repository, name, version, name, version)
}

// download fetches url into path and refuses content with another SHA-256.
func download(ctx context.Context, url, path, sum string, log *slog.Logger) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// A transport of its own: nothing of it stays open after the one download.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	body := &progress{from: response.Body, total: response.ContentLength, log: log, next: time.Now().Add(time.Second)}
	if _, err := io.Copy(io.MultiWriter(file, hash), body); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("get %s: its SHA-256 is %s, expected %s", url, got, sum)
	}
	return file.Close()
}

// progress logs, once a second, how far a download has come.
type progress struct {
	from        io.Reader
	read, total int64
	log         *slog.Logger
	next        time.Time
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.read += int64(n)
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(time.Second)
		p.log.Info("downloading Postgres", "mib", p.read>>20, "of_mib", p.total>>20)
	}
	return n, err
}

// extract unpacks the compressed tar that the jar holds into dir.
func extract(jar, dir string) error {
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		if !strings.HasSuffix(entry.Name, ".txz") {
			continue
		}
		packed, err := entry.Open()
		if err != nil {
			return err
		}
		defer packed.Close()
		plain, err := xz.NewReader(packed)
		if err != nil {
			return err
		}
		return untar(tar.NewReader(plain), dir)
	}
	return errors.New("the archive holds no .txz file")
}

// untar writes below dir and nowhere else, whatever names and links the archive holds.
func untar(from *tar.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := untarEntry(root, header, from); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

func untarEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, header.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, content); err != nil {
			file.Close()
			return err
		}
		return file.Close()
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
