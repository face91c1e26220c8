// Package admin serves what operators and their machines look at: /healthz, /readyz, /metrics, the page at / and its
// data at /api/status. It only reads; every other method is refused.
//
// Nothing here asks the database: answers come from what the relay and [ops.Stats] know already, so that they come at
// once, also while Postgres hangs.
//
// [ops.Stats]: https://pkg.go.dev/github.com/jobrelay/relay/internal/ops#Stats
package admin
