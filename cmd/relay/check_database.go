package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jobrelay/relay/claim"
	"github.com/jobrelay/relay/internal/ops"
	"github.com/jobrelay/relay/migrations"
)

const (
	checkConnections = 4
	oldSnapshot      = 5 * time.Minute
)

// databaseCheck asks the database whether it can be used, and only then the rest: the same error six times helps
// nobody.
func (s *settings) databaseCheck(db *pgxpool.Pool) check {
	return func(ctx context.Context) []ops.Finding {
		store, err := s.store(db)
		if err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: "settings", Text: err.Error()}}
		}
		p := ops.Preflight{DB: db, Store: store, Table: s.Table, Listen: s.listening()}
		found, err := p.Server(ctx)
		if err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: "database", Text: explain(err).Error()}}
		}
		if err := migrations.Check(ctx, db, s.Table); err != nil {
			return append(found, ops.Finding{Level: ops.Fail, Subject: "schema", Text: explain(err).Error()})
		}
		found = append(found, ops.Finding{Level: ops.OK, Subject: "schema", Text: "table " + s.Table + " is migrated"})
		checks := []check{p.Privileges, s.indexCheck(db, p), vacuumCheck(store)}
		if s.router != nil && s.router.Ordered() {
			checks = append(checks, s.orderCheck(db))
		}
		return append(found, together(ctx, checks)...)
	}
}

func (s *settings) listening() ops.Listening {
	switch s.ListenURL {
	case "":
		return ops.ListenOff
	case s.DatabaseURL:
		return ops.ListenAlong
	}
	return ops.ListenDirect
}

// indexCheck looks for the indexes, and asks how claims are planned when they are there.
func (s *settings) indexCheck(db *pgxpool.Pool, p ops.Preflight) check {
	return func(ctx context.Context) []ops.Finding {
		if err := migrations.CheckIndexes(ctx, db, s.Table); err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: "indexes", Text: err.Error()}}
		}
		return append([]ops.Finding{{Level: ops.OK, Subject: "indexes", Text: "those that claims, retention and dead jobs need are there"}}, p.Plan(ctx)...)
	}
}

// orderCheck looks for what keeping the order of keys needs.
func (s *settings) orderCheck(db *pgxpool.Pool) check {
	return func(ctx context.Context) []ops.Finding {
		if err := migrations.CheckOrder(ctx, db, s.Table); err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: "order index", Text: explain(err).Error()}}
		}
		return []ops.Finding{{Level: ops.OK, Subject: "order index", Text: "routes can keep the order of keys"}}
	}
}

// vacuumCheck looks for what keeps the table from being cleaned up.
func vacuumCheck(store *claim.Store) check {
	return func(ctx context.Context) []ops.Finding {
		f, err := store.Figures(ctx)
		if err != nil {
			return []ops.Finding{{Level: ops.Fail, Subject: "figures", Text: err.Error()}}
		}
		found := ops.Finding{Level: ops.OK, Subject: "vacuum", Text: fmt.Sprintf("%d dead tuples, no old snapshot", f.DeadTuples)}
		if o := f.OldestSnapshot; o != nil {
			found.Text = fmt.Sprintf("%d dead tuples; the oldest snapshot is %s old: process %d (%s), %s", f.DeadTuples, seconds(o.AgeSeconds), o.PID, orDash(o.Application), o.State)
			if o.AgeSeconds > oldSnapshot.Seconds() {
				found.Level = ops.Warn
				found.Text += ": while it is open vacuum can't clean up, and the table grows"
			}
		}
		return []ops.Finding{found}
	}
}

// listenCheck proves that the connection for LISTEN hears something.
func (s *settings) listenCheck() check {
	return func(ctx context.Context) []ops.Finding {
		l := s.listener()
		if l == nil {
			return []ops.Finding{{Level: ops.OK, Subject: "listen", Text: "is off: polling only"}}
		}
		conn, err := connect(ctx, l.URL)
		if err != nil {
			return []ops.Finding{{Level: ops.Warn, Subject: "listen", Text: "RELAY_LISTEN_URL can't be connected to, so jobs wait for polling: " + explain(err).Error()}}
		}
		_ = conn.Close(ctx)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		up, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() {}, func(is bool) {
				if is {
					up <- struct{}{}
					cancel()
				}
			})
		}()
		<-ended
		select {
		case <-up:
			return []ops.Finding{{Level: ops.OK, Subject: "listen", Text: "notifications can be waited for"}}
		default:
			return []ops.Finding{{Level: ops.Warn, Subject: "listen", Text: "LISTEN doesn't work on RELAY_LISTEN_URL, so jobs wait for polling; a transaction-mode pooler needs a direct connection there"}}
		}
	}
}
