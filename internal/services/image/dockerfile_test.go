package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// instructions returns a Dockerfile's lines with comments removed and continued lines joined, by build stage.
func instructions(t *testing.T) (stages [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "FROM ") {
			stages = append(stages, nil)
		}
		if len(stages) == 0 {
			t.Fatalf("%q stands before the first FROM", line)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], line)
	}
	return stages
}

func TestDockerfileShipsOnlyTheBinaryAsANobody(t *testing.T) {
	t.Parallel()
	stages := instructions(t)
	last := strings.Join(stages[len(stages)-1], "\n")
	for _, want := range []string{`(?m)^FROM scratch$`, `(?m)^USER [1-9]\d*:[1-9]\d*$`, `(?m)^ENTRYPOINT \["/relay"\]$`, `(?m)^COPY --from=build /relay /relay$`} {
		if !regexp.MustCompile(want).MatchString(last) {
			t.Errorf("the image's stage has no line %s:\n%s", want, last)
		}
	}
	if strings.Contains(last, "RUN ") {
		t.Errorf("the image's stage runs a command, but it has no shell:\n%s", last)
	}
}

func TestDockerfileChecksHealthWithoutAShell(t *testing.T) {
	t.Parallel()
	stages := instructions(t)
	for _, line := range stages[len(stages)-1] {
		if !strings.HasPrefix(line, "HEALTHCHECK ") {
			continue
		}
		_, command, _ := strings.Cut(line, " CMD ")
		var args []string
		if err := json.Unmarshal([]byte(command), &args); err != nil || len(args) != 2 || args[0] != "/relay" || args[1] != "health" {
			t.Errorf(`health check: got %s, want the exec form ["/relay", "health"]`, command)
		}
		return
	}
	t.Error("the image has no health check")
}

// The image is built the way `make build` builds, by a Go that the module takes.
func TestDockerfileBuildsAsTheMakefileDoes(t *testing.T) {
	t.Parallel()
	build := strings.Join(instructions(t)[0], "\n")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CGO_ENABLED=0 go build -trimpath", "-X github.com/jobrelay/relay/internal/version.number="} {
		if !strings.Contains(build, want) || !strings.Contains(string(makefile), want) {
			t.Errorf("Dockerfile and Makefile must both have %q", want)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	image := regexp.MustCompile(`FROM golang:(\d+\.\d+)\.\d+-`).FindStringSubmatch(build)
	if language == nil || image == nil || image[1] != string(language[1]) {
		t.Errorf("Go: the image is built by %q, go.mod wants %q", image, language)
	}
}
