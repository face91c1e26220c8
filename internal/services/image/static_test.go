package image

import (
	"bytes"
	"context"
	"debug/elf"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobrelay/relay/internal/services/host"
	"github.com/jobrelay/relay/internal/testdb"
)

// rootfs builds the binary as the image does (less -trimpath, which would compile the standard library anew) and lays it into a folder that nobody may write to, as the only file.
func rootfs(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("images are for Linux")
	}
	cache, err := host.CacheDir(host.Unprivileged())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := host.NewFolder(t.Context(), cache, "image", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.Chmod(folder.Path, 0o755)
		if err := folder.Remove(); err != nil {
			t.Error(err)
		}
	})
	build := exec.Command("go", "build", "-ldflags", "-s -w -X github.com/jobrelay/relay/internal/version.number=v0.0.0-test",
		"-o", filepath.Join(folder.Path, "relay"), "./cmd/relay")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.Chmod(folder.Path, 0o555); err != nil {
		t.Fatal(err)
	}
	return folder.Path
}

// command runs the binary as the image does: no shell, no other file, no environment, no rights. An ordinary user
// can't change the root, so there the folder is only the working folder.
func command(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("/relay", args...)
	cmd.Env = env
	if os.Geteuid() == 0 {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	} else {
		cmd.Path, cmd.Dir = filepath.Join(dir, "relay"), dir
	}
	return cmd
}

func TestStaticBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and needs a database; -short leaves it out")
	}
	t.Parallel()
	dir := rootfs(t)
	t.Run("needs no dynamic linker", func(t *testing.T) { checkStatic(t, dir) })
	t.Run("serves on a read-only root", func(t *testing.T) { checkServes(t, dir) })
}

func checkStatic(t *testing.T, dir string) {
	binary, err := elf.Open(filepath.Join(dir, "relay"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic linker, which the image doesn't have")
		}
	}
	out, err := command(dir, nil, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v0.0.0-test") {
		t.Errorf("version: got %q, %v, want the version that the linker was told", out, err)
	}
}

// checkServes goes through the whole life of a container: start with migration, ready, healthy, TERM, exit 0.
func checkServes(t *testing.T, dir string) {
	db := testdb.Empty(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	env := []string{
		"RELAY_DATABASE_URL=" + db.URL, "RELAY_TABLE=" + db.Table, "RELAY_MIGRATE=true",
		"RELAY_ROUTES=[{kind: never, to: ['discard:']}]", "RELAY_ADMIN_ADDR=" + addr,
	}
	if out, err := command(dir, env, "health").CombinedOutput(); err == nil {
		t.Errorf("health of a relay that doesn't run: got exit 0, %s", out)
	}
	relay := command(dir, env, "run")
	var log bytes.Buffer
	relay.Stdout, relay.Stderr = &log, &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for command(dir, env, "health", "--ready").Run() != nil {
		select {
		case err := <-ended:
			t.Fatalf("run ended: %v\n%s", err, log.String())
		case <-ctx.Done():
			relay.Process.Kill()
			<-ended
			t.Fatalf("never ready\n%s", log.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	if out, err := command(dir, env, "health").CombinedOutput(); err != nil {
		t.Errorf("health: %v\n%s", err, out)
	}
	relay.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("run after TERM: got %v, want exit 0\n%s", err, log.String())
	}
}
