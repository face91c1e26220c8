package config_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/jobrelay/relay/config"
)

// The routes that the page shows must be taken as they stand there.
func TestRoutesInTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("the page shows no routes")
	}
	for _, block := range blocks {
		cfg, problems, _ := config.Load(config.Environ{"RELAY_ROUTES": block[1]}, config.Need{Routes: true})
		if len(problems) > 0 || len(cfg.Routes) != 3 {
			t.Errorf("got %d routes, problems %v, from\n%s", len(cfg.Routes), problems, block[1])
		}
	}
}
