package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/jobrelay/relay/config"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
	"github.com/jobrelay/relay/sinks"
	"github.com/jobrelay/relay/sinks/stdout"
)

// settings is what the environment says, checked: the relay's own, the sinks' and the routes.
type settings struct {
	*config.Config
	sinks  map[string]sinks.Settings // by name: those that routes or RELAY_SINKS name
	routes []relay.Route
	router *relay.Router // nil without routes
	log    *slog.Logger
}

// load reads the settings that a command needs. Everything that's wrong comes at once, as config.Problems; warnings
// are logged.
func (a *app) load(need config.Need) (*settings, error) {
	s, problems, warnings := read(a.env, need)
	if len(problems) > 0 {
		return nil, problems
	}
	s.log = a.logger(s.LogLevel, s.LogFormat)
	s.print(a.stdout)
	for _, w := range warnings {
		s.log.Warn(w)
	}
	return s, nil
}

// read decodes and checks everything that can be checked without a connection.
func read(env config.Environ, need config.Need) (*settings, config.Problems, []string) {
	cfg, problems, warnings := config.Load(env, need)
	s := &settings{Config: cfg, sinks: map[string]sinks.Settings{}}
	found := s.decodeSinks(env, &warnings)
	problems = append(problems, found...)
	for _, r := range cfg.Routes {
		s.routes = append(s.routes, relay.Route{Kind: r.Kind, To: r.To, Order: r.Order, Dead: r.Dead, Share: r.Share})
	}
	if len(s.routes) > 0 && !slices.ContainsFunc(problems, aboutRoutes) {
		problems = append(problems, s.compileRoutes(env, &warnings)...)
	}
	return s, problems, append(warnings, config.Unknown(env, s.sections()...)...)
}

func aboutRoutes(p config.Problem) bool { return strings.HasPrefix(p.Name, "RELAY_ROUTES") }

// decodeSinks reads the settings of the sinks that routes or RELAY_SINKS name.
func (s *settings) decodeSinks(env config.Environ, warnings *[]string) config.Problems {
	var problems config.Problems
	types := s.types()
	for _, named := range s.Sinks {
		if typeNamed(named.Type) == nil {
			problems = append(problems, config.Problem{Name: "RELAY_SINKS", Text: fmt.Sprintf(
				"RELAY_SINKS=%q: there is no sink type %q; there are %s", named.Name+":"+named.Type, named.Type, strings.Join(typeNames(), ", "))})
		}
	}
	for _, name := range s.used() {
		t, ok := types[name]
		if !ok {
			continue // the router names the route
		}
		own := t.Settings()
		problems = append(problems, config.Decode(env, config.SinkPrefix(name), own)...)
		if w, ok := own.(interface{ Warnings() []string }); ok {
			for _, text := range w.Warnings() {
				*warnings = append(*warnings, config.SinkPrefix(name)+text)
			}
		}
		s.sinks[name] = own
	}
	return problems
}

// compileRoutes has the engine check the routes; what it finds belongs to the variable that they came from.
func (s *settings) compileRoutes(env config.Environ, warnings *[]string) config.Problems {
	variable := "RELAY_ROUTES"
	if strings.TrimSpace(env["RELAY_ROUTES_FILE"]) != "" {
		variable = "RELAY_ROUTES_FILE"
	}
	router, errs, hidden := relay.NewRouter(s.routes, s.addresses())
	var problems config.Problems
	for _, err := range errs {
		problems = append(problems, config.Problem{Name: variable, Text: variable + ": " + err.Error()})
	}
	for _, text := range hidden {
		*warnings = append(*warnings, variable+": "+text)
	}
	s.router = router
	return problems
}

// types are the sink types by the names that routes may use.
func (s *settings) types() map[string]sinks.Type {
	types := map[string]sinks.Type{}
	for _, t := range sinkTypes() {
		types[t.Name] = t
	}
	for _, named := range s.Sinks {
		if t := typeNamed(named.Type); t != nil {
			types[named.Name] = *t
		}
	}
	return types
}

// used lists the sinks that routes or RELAY_SINKS name.
func (s *settings) used() []string {
	var names []string
	for _, named := range s.Sinks {
		names = append(names, named.Name)
	}
	for _, r := range s.Config.Routes {
		for _, to := range r.To {
			if name, _, ok := strings.Cut(to, ":"); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sections are all settings that are known beside the relay's own.
func (s *settings) sections() []config.Section {
	var sections []config.Section
	for name, t := range s.types() {
		sections = append(sections, config.Section{Prefix: config.SinkPrefix(name), Settings: t.Settings()})
	}
	return sections
}

// serves says which kinds have a route; nil without routes.
func (s *settings) serves() func(kind string) bool {
	if s.router == nil {
		return nil
	}
	return s.router.Serves
}

// known is what figures need of the routes.
func (s *settings) known() ops.Routes {
	if s.router == nil {
		return ops.Routes{}
	}
	return ops.Routes{Serves: s.router.Serves, Closes: s.router.Closes}
}

// addresses are what each sink knows of its addresses.
func (s *settings) addresses() map[string]relay.Addresses {
	out := map[string]relay.Addresses{}
	for name, own := range s.sinks {
		a := relay.Addresses{Check: own.CheckAddress}
		if p, ok := own.(sinks.Parented); ok {
			a.Parent = p.Parent
		}
		out[name] = a
	}
	return out
}

// print sends what stdout sinks write to a writer.
func (s *settings) print(to io.Writer) {
	for _, own := range s.sinks {
		if o, ok := own.(*stdout.Settings); ok {
			o.Writer = to
		}
	}
}
