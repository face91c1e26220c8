package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// wellFormed fails unless every problem is one line that names a variable of ours.
func wellFormed(t *testing.T, problems Problems) {
	t.Helper()
	for _, p := range problems {
		if !strings.HasPrefix(p.Name, prefix) || !strings.HasPrefix(p.Text, p.Name) || strings.ContainsAny(p.Text, "\n\r\x00\x1b") || !utf8.ValidString(p.Text) {
			t.Errorf("problem of %q: %q", p.Name, p.Text)
		}
	}
	if len(problems) > mostRouteProblems+10 {
		t.Errorf("%d problems", len(problems))
	}
}

// FuzzRoutes reads any text as routes. What is wrong with it is said in lines that name the variable; what isn't wrong
// keeps the rules, can be stored by Postgres, and stays the same when it is written out and read again.
func FuzzRoutes(f *testing.F) {
	files, err := filepath.Glob("testdata/routes-*.yml")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("routes:\n- kind: \"order.*\"\n  to: [\"kafka:orders\", 'sqs:billing']\n  order: key\n  dead: skip\n  share: 25\n- {kind: '*', to: [\"rabbitmq:a%2Fb/{key}\"]}\n")
	f.Add(`[{"kind": "a\\*b", "to": ["discard:"]}]`)
	f.Add("a: &a [discard:]\nroutes: [{kind: 007, to: *a}]")
	f.Add(`[{kind: "a\0", to: ["discard:"]}, {kind: b, to: ["rabbitmq:x/\0", "kafka:{header.\x7f}"]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, problems, _ := Load(Environ{"RELAY_ROUTES": text}, Need{Routes: true})
		wellFormed(t, problems)
		if len(problems) > 0 {
			return
		}
		kinds := map[string]bool{}
		for _, r := range cfg.Routes {
			for _, s := range append([]string{r.Kind}, r.To...) {
				if s == "" || !utf8.ValidString(s) || strings.Contains(s, "\x00") {
					t.Errorf("%q can't be stored", s)
				}
			}
			if kinds[r.Kind] || len(r.Kind) > longestKind || len(r.To) == 0 || r.Share != nil && (*r.Share < 0 || *r.Share > 100) || (r.Order == "key") != (r.Dead != "") {
				t.Errorf("route %+v", r)
			}
			kinds[r.Kind] = true
		}
		written := writeRoutes(cfg.Routes)
		again, problems, _ := Load(Environ{"RELAY_ROUTES": written}, Need{Routes: true})
		if len(problems) > 0 || !reflect.DeepEqual(again.Routes, cfg.Routes) {
			t.Errorf("%v: read again from\n%s\n got %+v\nwant %+v", problems, written, again.Routes, cfg.Routes)
		}
	})
}

// writeRoutes is YAML that says the same.
func writeRoutes(routes []Route) string {
	var b strings.Builder
	for _, r := range routes {
		b.WriteString("- kind: " + strconv.QuoteToASCII(r.Kind) + "\n  order: " + r.Order + "\n  to:\n")
		for _, to := range r.To {
			b.WriteString("  - " + strconv.QuoteToASCII(to) + "\n")
		}
		if r.Dead != "" {
			b.WriteString("  dead: " + r.Dead + "\n")
		}
		if r.Share != nil {
			b.WriteString("  share: " + strconv.Itoa(*r.Share) + "\n")
		}
	}
	return b.String()
}

// FuzzSettings gives a variable any value, and any name. Every value is taken within its range or refused in lines that
// name the variable and show nothing secret; no name is passed over in silence.
func FuzzSettings(f *testing.F) {
	for _, s := range fields(prefix, Config{}) {
		f.Add(strings.TrimPrefix(s.name, prefix), s.text)
		f.Add(strings.TrimPrefix(s.name, prefix), "-1")
	}
	for _, s := range fields(prefix, brokerSettings{}) {
		f.Add("X_"+strings.TrimPrefix(s.name, prefix), s.text)
	}
	f.Add("LEASE", "1e9h")
	f.Add("BATCH_BYTES", "9223372036854775808")
	f.Add("BATCH_BYTES", "1e400MiB")
	f.Add("SINKS", "a:kafka,,b-c:sqs, a_b:x")
	f.Add("DATABASE_URL", "postgres://u:s3cr3t%zz@h:1,i:2/x?sslmode=nope")
	f.Add("DATABASE_URL_FILE", "/dev/null")
	f.Add("X_PLAIN", "S3CR3T and more of it")
	f.Add("WORKERS", "300")
	f.Add("LAESE", "1m")
	f.Add("PORT", "tcp://10.0.0.1:80")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") || strings.HasSuffix(name, "_FILE") && value != "/dev/null" {
			return // no environment holds these; and no file is read by a random name
		}
		env := with(map[string]string{name: value, "X_BROKERS": "a:1"})
		if name == "X_BROKERS" {
			env["RELAY_X_BROKERS"] = value
		}
		env["HOME"] = "/root"
		cfg, problems, _ := Load(env, Need{})
		var sink brokerSettings
		problems = append(problems, Decode(env, "RELAY_X_", &sink)...)
		wellFormed(t, problems)
		hidden(t, "RELAY_"+name, value, problems)
		if len(problems) == 0 {
			inRange(t, fields(prefix, cfg), reflect.ValueOf(cfg).Elem())
			inRange(t, fields("RELAY_X_", &sink), reflect.ValueOf(&sink).Elem())
		}
		for _, line := range Unknown(env, Section{"RELAY_X_", brokerSettings{}}) {
			if !strings.HasPrefix(line, "RELAY_"+name+" ") {
				t.Errorf("of RELAY_%q it says %q", name, line)
			}
		}
	})
}

// hidden fails when a problem shows the value of a secret.
func hidden(t *testing.T, name, value string, problems Problems) {
	t.Helper()
	all := append(fields(prefix, Config{}), fields("RELAY_X_", brokerSettings{})...)
	secret := slices.ContainsFunc(all, func(f field) bool { return f.secret && f.name == name })
	// A value of a few letters occurs in every text.
	if shown := strings.TrimSpace(value); secret && len(shown) > 12 && strings.Contains(problems.Error(), shown) && !strings.Contains("postgres://user:password@host:5432/database", shown) {
		t.Errorf("%s=%q is shown: %v", name, value, problems)
	}
}

// inRange fails when a setting breaks the rule that its tags give.
func inRange(t *testing.T, all []field, values reflect.Value) {
	t.Helper()
	for _, f := range all {
		v := values.Field(f.index)
		if f.low == "" || f.zero != "" && v.IsZero() {
			continue
		}
		low, _ := f.convert(f.low)
		high, _ := f.convert(f.high)
		if v.Int() < low.Int() || v.Int() > high.Int() {
			t.Errorf("%s is %v, its range is %s to %s", f.name, v, f.low, f.high)
		}
	}
}
