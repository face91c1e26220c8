package ops

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/sqlname"
)

//go:embed privileges.sql
var privilegesSQL string

// Preflight examines the database's half of what the relay needs. Each check is bounded by its context and changes
// nothing.
type Preflight struct {
	DB     *pgxpool.Pool
	Store  *claim.Store
	Table  string // as in RELAY_TABLE
	Listen Listening
}

// Listening is what RELAY_LISTEN_URL says.
type Listening uint8

const (
	ListenAlong  Listening = iota // by the database's URL
	ListenDirect                  // by a URL of its own
	ListenOff
)

func (p Preflight) table() string {
	at, err := sqlname.Parse(p.Table)
	if err != nil {
		return p.Table // the schema's check has refused it before
	}
	return at.Quoted()
}

// Server says what the server is, and what a pooler before it means.
func (p Preflight) Server(ctx context.Context) ([]Finding, error) {
	s, err := LookAt(ctx, p.DB)
	if err != nil {
		return nil, err
	}
	if err := s.Usable(); err != nil {
		return nil, err
	}
	found := []Finding{{OK, "database", fmt.Sprintf("PostgreSQL %s, database %s, user %s", s.Version, s.Database, s.User)}}
	if s.Pooled {
		found = append(found, p.pooler()...)
	}
	return found, nil
}

func (p Preflight) pooler() []Finding {
	var found []Finding
	if p.DB.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		found = append(found, Finding{Warn, "pooler", "default_query_exec_mode=cache_statement needs a pooler that keeps prepared statements; leave it out of the URL otherwise"})
	}
	const leads = "the URL leads through a pooler"
	switch p.Listen {
	case ListenAlong:
		found = append(found, Finding{Warn, "pooler", leads + ": give RELAY_LISTEN_URL a direct connection for LISTEN and migrations, or set it to off"})
	case ListenOff:
		found = append(found, Finding{OK, "pooler", leads + ", and LISTEN is off; relay migrate wants a direct connection in RELAY_LISTEN_URL"})
	default:
		found = append(found, Finding{OK, "pooler", leads + ", LISTEN and migrations don't"})
	}
	return found
}

// Privileges says what the relay's user may not do: a failure where relay run needs it, a warning where only commands
// of an operator do, who may use another role.
func (p Preflight) Privileges(ctx context.Context) []Finding {
	rows, err := p.DB.Query(ctx, privilegesSQL, p.table())
	if err != nil {
		return []Finding{{Fail, "privileges", err.Error()}}
	}
	var run, operate []string
	var right, commands string
	_, err = pgx.ForEachRow(rows, []any{&right, &commands}, func() error {
		if commands == "" {
			run = append(run, right)
		} else {
			operate = append(operate, right+" ("+commands+")")
		}
		return nil
	})
	var found []Finding
	switch {
	case err != nil:
		return []Finding{{Fail, "privileges", err.Error()}}
	case len(run) > 0:
		found = append(found, Finding{Fail, "privileges", "the user lacks " + strings.Join(run, ", ")})
	case len(operate) == 0:
		return []Finding{{OK, "privileges", "the user may do what the relay does"}}
	}
	if len(operate) > 0 {
		found = append(found, Finding{Warn, "privileges", "the user lacks what only these commands need: " + strings.Join(operate, ", ")})
	}
	return found
}

// Plan says whether claims walk the pending index, which must be there.
func (p Preflight) Plan(ctx context.Context) []Finding {
	at, err := sqlname.Parse(p.Table)
	if err != nil {
		return []Finding{{Fail, "claim plan", err.Error()}}
	}
	name := at.Index("pending")
	switch walked, err := p.Store.ClaimIndex(ctx); {
	case err != nil:
		return []Finding{{Fail, "claim plan", err.Error()}}
	case walked != name:
		return []Finding{{Warn, "claim plan", "claims don't walk the index " + name + ": they will be slow; look at EXPLAIN and at settings such as enable_indexscan"}}
	}
	return []Finding{{OK, "claim plan", "claims walk the index " + name}}
}
