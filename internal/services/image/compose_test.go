package image

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/jobrelay/relay/internal/services/native"
)

// root is the top of the project.
var root = filepath.Join("..", "..", "..")

type compose struct {
	Services map[string]service   `yaml:"services"`
	Volumes  map[string]yaml.Node `yaml:"volumes"`
}

type service struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ReadOnly    bool              `yaml:"read_only"`
	HealthCheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

func parse(t *testing.T) compose {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComposeRunsTheVersionsThatRunNatively(t *testing.T) {
	t.Parallel()
	c := parse(t)
	got := make(map[string]string)
	for name, s := range c.Services {
		got[name] = s.Image
	}
	want := map[string]string{
		"postgres": native.PostgresImage, "kafka": native.KafkaImage, "elasticmq": native.ElasticMQImage,
		"rabbitmq": native.RabbitMQImage, "relay": "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("images: got %v, want %v", got, want)
	}
	if c.Services["relay"].Build != "." {
		t.Errorf("relay is built from %q, want the Dockerfile at the top", c.Services["relay"].Build)
	}
}

func TestComposePinsPublishesAndChecks(t *testing.T) {
	t.Parallel()
	c := parse(t)
	pinned := regexp.MustCompile(`:\d+\.\d+(\.\d+)?(-[a-z]+)?$`)
	published := regexp.MustCompile(`^127\.0\.0\.1:\$\{([A-Z_]+):-(\d+)\}:(\d+)$`)
	taken := make(map[string]string)
	for name, s := range c.Services {
		if name != "relay" && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned to a version", name, s.Image)
		}
		if name != "relay" && len(s.HealthCheck.Test) < 2 {
			t.Errorf("%s has no health check", name)
		}
		if len(s.Ports) == 0 {
			t.Errorf("%s publishes nothing", name)
		}
		for _, port := range s.Ports {
			m := published.FindStringSubmatch(port)
			if m == nil {
				t.Errorf("%s: port %q, want one on 127.0.0.1 with a variable: %s", name, port, published)
				continue
			}
			for _, key := range []string{m[1], m[2]} {
				if taken[key] != "" {
					t.Errorf("%s and %s both use %s", name, taken[key], key)
				}
				taken[key] = name
			}
		}
		for _, mount := range s.Volumes {
			volume, _, _ := strings.Cut(mount, ":")
			if _, declared := c.Volumes[volume]; !declared {
				t.Errorf("%s: volume %q is not declared", name, volume)
			}
		}
	}
}

func TestComposeRelayWaitsForAllAndIsReadOnly(t *testing.T) {
	t.Parallel()
	c := parse(t)
	relay := c.Services["relay"]
	if !relay.ReadOnly {
		t.Error("relay's root is writable")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		if name != "relay" && relay.DependsOn[name].Condition != "service_healthy" {
			t.Errorf("relay doesn't wait for a healthy %s", name)
		}
	}
	hosts := regexp.MustCompile(`(?:@|//|^)([a-z]+):\d+`)
	for name, value := range relay.Environment {
		for _, m := range hosts.FindAllStringSubmatch(value, -1) {
			if _, ok := c.Services[m[1]]; !ok && !strings.Contains(m[1], "guest") && m[1] != "postgres" {
				t.Errorf("%s names the host %q, which is no service here", name, m[1])
			}
		}
	}
}
