package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/jobrelay/relay/internal/services/host"
)

// need is a program and the Debian package that has it.
type need struct {
	name    string
	missing func() bool
	deb     string
}

func program(name, deb string) need {
	return need{name, func() bool { _, err := exec.LookPath(name); return err != nil }, deb}
}

// Java 17 or newer; every Debian since 12 has it under this name.
var (
	needJava     = program("java", "default-jre-headless")
	needMaven    = program("mvn", "maven")
	needRabbitMQ = need{"rabbitmq-server", func() bool { _, err := rabbitFolder(); return err != nil }, "rabbitmq-server"}
)

var installing sync.Mutex

// Install installs what the named services (see stack.Names) need and the machine lacks: on Debian as root, elsewhere it
// says what is missing.
func Install(ctx context.Context, e *Env, services []string) error {
	if e.Docker {
		return nil
	}
	var needs []need
	for _, service := range services {
		switch service {
		case "kafka":
			needs = append(needs, e.needJars(kafkaFolder)...)
		case "sqs":
			needs = append(needs, e.needJars(elasticMQFolder)...)
		case "rabbitmq":
			needs = append(needs, needRabbitMQ)
		}
	}
	return e.install(ctx, needs...)
}

// needJars leaves Maven out when it has done its work before.
func (e *Env) needJars(folder string) []need {
	if _, err := os.Stat(filepath.Join(e.Cache, folder)); err == nil {
		return []need{needJava}
	}
	return []need{needJava, needMaven}
}

func (e *Env) install(ctx context.Context, needs ...need) error {
	installing.Lock()
	defer installing.Unlock()
	missing, packages := absent(needs)
	if len(missing) == 0 {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("%s not found: install it first (Debian: apt-get install %s); only root on Debian can leave that to us, and with a container engine none of it is needed",
			strings.Join(missing, ", "), strings.Join(packages, " "))
	}
	lock, err := host.Acquire(ctx, filepath.Join(e.Cache, "install.lock"))
	if err != nil {
		return err
	}
	defer lock.Release()
	if missing, packages = absent(needs); len(missing) == 0 {
		return nil // another process has installed it meanwhile
	}
	e.Log.Info("installing packages", "packages", packages)
	restore, err := forbidServices()
	if err != nil {
		return err
	}
	defer restore()
	if err := run(ctx, apt, "-q", "update"); err != nil {
		return err
	}
	if err := run(ctx, apt, append([]string{"-q", "-y", "--no-install-recommends", "install"}, packages...)...); err != nil {
		return err
	}
	if missing, _ = absent(needs); len(missing) > 0 {
		return fmt.Errorf("%s still not found after installing %s", strings.Join(missing, ", "), strings.Join(packages, " "))
	}
	return nil
}

func absent(needs []need) (names, packages []string) {
	for _, n := range needs {
		if n.missing() && !slices.Contains(names, n.name) {
			names, packages = append(names, n.name), append(packages, n.deb)
		}
	}
	return names, packages
}

// forbidServices keeps packages from starting a server of the system's own while they are installed: tests start
// their own nodes, and leave nothing running. A policy of the machine's owner stays as it is.
func forbidServices() (restore func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Lstat(policy); err == nil {
		return func() {}, nil
	}
	if err := os.WriteFile(policy, fmt.Appendf(nil, "#!/bin/sh\nkill -0 %d 2>/dev/null && exit 101\nexit 0\n", os.Getpid()), 0o755); err != nil {
		return nil, fmt.Errorf("keep packages from starting services: %w", err)
	}
	return func() { os.Remove(policy) }, nil
}

func run(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, last(out))
	}
	return nil
}

func last(out []byte) string {
	const most = 4 << 10
	return strings.TrimSpace(string(out[max(0, len(out)-most):]))
}
