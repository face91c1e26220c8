package admin

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/relay"
)

//go:embed page.html style.css
var files embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count":  count,
	"routed": routed,
	"span":   span,
	"clock":  func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
}).ParseFS(files, "page.html"))

// maxRows bounds the kinds on the page; /api/status has them all.
const maxRows = 100

// view is the page's data.
type view struct {
	overview
	Now     time.Time
	Places  []place
	Kinds   []ops.Kind
	Hidden  int // kinds that are not in Kinds
	Stale   bool
	Totals  ops.Kind   // of the routed kinds
	Figures ops.Status // as overview's, never nil
	Known   bool       // figures have been read
}

// place is a sink or a destination.
type place struct {
	What, Name string
	relay.State
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, s.view()); err != nil {
		s.c.Log.Error("rendering the page failed", "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}

func (s *Server) view() view {
	v := view{overview: s.overview(), Now: time.Now()}
	v.Places = append(places("sink", v.Readiness.Sinks), places("destination", v.Readiness.Destinations)...)
	if v.overview.Figures == nil {
		return v
	}
	v.Figures, v.Known = *v.overview.Figures, true
	v.Stale = v.AgeSeconds > ops.MaxAge.Seconds()
	for _, k := range v.Figures.Kinds {
		if !routed(k) {
			continue // somebody else's
		}
		v.Totals.Ready += k.Ready
		v.Totals.Due += k.Due
		v.Totals.Running += k.Running
		v.Totals.Dead += k.Dead
		v.Totals.Capped = v.Totals.Capped || k.Capped
	}
	v.Kinds = slices.Clone(v.Figures.Kinds)
	if len(v.Kinds) > maxRows { // what needs a look comes first
		slices.SortStableFunc(v.Kinds, func(a, b ops.Kind) int {
			return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.OldestDueSeconds, a.OldestDueSeconds))
		})
		v.Hidden = len(v.Kinds) - maxRows
		v.Kinds = v.Kinds[:maxRows]
	}
	return v
}

func routed(k ops.Kind) bool { return k.Routed == nil || *k.Routed }

// places lists states by name, those that are down first.
func places(what string, states map[string]relay.State) []place {
	var out []place
	for _, name := range slices.Sorted(maps.Keys(states)) {
		out = append(out, place{what, name, states[name]})
	}
	slices.SortStableFunc(out, func(a, b place) int { return cmp.Compare(up(a), up(b)) })
	return out
}

func up(p place) int {
	if p.Up {
		return 1
	}
	return 0
}

func style(w http.ResponseWriter, _ *http.Request) {
	css, err := files.ReadFile("style.css")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(css)
}

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// span writes seconds as a person says them: 0.4 s, 12 s, 3 min 20 s, 5 h 12 min, 3 d 4 h.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
