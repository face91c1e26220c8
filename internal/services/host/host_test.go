package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCacheDirIsWhereTheDatabasesUserCanGo(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	for dir := open; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "/home/somebody")
	nobody := &User{Name: "nobody"}
	for _, c := range []struct {
		name, xdg string
		user      *User
		want      string
	}{
		{"root, open folder", open, nobody, open + "/relay"},
		{"root, open folder that doesn't exist yet", open + "/a/b", nobody, open + "/a/b/relay"},
		{"root, closed folder", closed + "/a", nobody, systemCache},
		{"root, none", "", nobody, systemCache},
		{"root, relative", "cache", nobody, systemCache},
		{"ordinary user, closed folder", closed, nil, closed + "/relay"},
	} {
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		if got, err := cacheDir(c.user); got != c.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestFillDoesItOnceAndWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	fail := errors.New("connection lost")
	if _, err := Fill(t.Context(), cache, "jars", func(dir string) error {
		os.WriteFile(filepath.Join(dir, "half"), nil, 0o600)
		return fail
	}); !errors.Is(err, fail) {
		t.Fatalf("fill: got %v, want %v", err, fail)
	}
	if _, err := os.Stat(filepath.Join(cache, "jars")); err == nil {
		t.Error("a failed fill left a folder that looks whole")
	}
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := Fill(t.Context(), cache, "jars", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "jar"), nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			info, err := os.Stat(filepath.Join(dir, "jar"))
			if err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("jar: got %v, %v, want a file that everybody may read", info, err)
			}
		})
	}
	wg.Wait()
	if got := fills.Load(); got != 1 {
		t.Errorf("filled %d times, want once", got)
	}
}

func TestFoldersOfLivingOwnersStay(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	kept, err := NewFolder(t.Context(), cache, "kept", nil)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := NewFolder(t.Context(), cache, "killed", nil)
	if err != nil {
		t.Fatal(err)
	}
	killed.lock.Release() // as the kernel does for a killed process
	if err := Sweep(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "run", "*-*"))
	if err != nil || len(left) != 2 || !strings.HasPrefix(left[0], kept.Path) {
		t.Errorf("after the sweep: got %v, %v, want the living owner's folder and lock", left, err)
	}
	if err := kept.Remove(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "run", "*-*")); len(left) != 0 {
		t.Errorf("after removal: got %v, want nothing", left)
	}
}

func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	seen := make(map[int]bool)
	for range 50 {
		port, err := Port(cache)
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Errorf("port %d was given twice", port)
		}
		seen[port] = true
	}
	for port := range seen {
		ReleasePort(port)
	}
	if left, _ := os.ReadDir(filepath.Join(cache, "ports")); len(left) != 0 {
		t.Errorf("%d reservations left, want none", len(left))
	}
}
