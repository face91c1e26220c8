package config_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/sinks/kafka"
	"github.com/jobrelay/relay/sinks/rabbitmq"
	"github.com/jobrelay/relay/sinks/sqs"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md")

// documented are the sections that the page has a table for.
func documented() map[string]config.Section {
	return map[string]config.Section{
		"RELAY_":          {Prefix: "RELAY_", Settings: config.Config{}},
		"RELAY_KAFKA_":    {Prefix: "RELAY_KAFKA_", Settings: kafka.Type().Settings()},
		"RELAY_RABBITMQ_": {Prefix: "RELAY_RABBITMQ_", Settings: rabbitmq.Type().Settings()},
		"RELAY_SQS_":      {Prefix: "RELAY_SQS_", Settings: sqs.Type().Settings()},
	}
}

// The tables are made from the code. Run with -update when a setting has changed.
func TestDocsAreCurrent(t *testing.T) {
	const page = "../docs/configuration.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	sections := documented()
	table := regexp.MustCompile(`(?s)<!-- begin (\w+) -->\n.*?<!-- end -->`)
	got := table.ReplaceAllStringFunc(string(text), func(old string) string {
		name := table.FindStringSubmatch(old)[1]
		section, ok := sections[name]
		if !ok {
			t.Errorf("the page has a table for %s, which isn't among the sections of this test", name)
			return old
		}
		delete(sections, name)
		return "<!-- begin " + name + " -->\n" + config.Table(section) + "<!-- end -->"
	})
	for name := range sections {
		t.Errorf("the page lacks a table for %s", name)
	}
	if got == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s isn't current; run go test ./config -run TestDocs -update", page)
	}
	if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Whoever reads the docs must learn what a setting does and takes.
func TestEverySettingIsExplained(t *testing.T) {
	for name, section := range documented() {
		for _, line := range strings.Split(strings.TrimSpace(config.Table(section)), "\n")[2:] {
			cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), " | ")
			if len(cells) != 4 || strings.Trim(cells[3], " |") == "" {
				t.Errorf("%s: no help in %s", name, line)
			}
			if strings.Contains(line, "| a whole number |") || strings.Contains(line, "a duration |") || strings.Contains(line, "a size |") {
				t.Errorf("%s: no range in %s", name, line)
			}
		}
	}
}
