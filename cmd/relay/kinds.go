package main

import (
	"context"
	"errors"

	"github.com/jobrelay/relay/claim"
	"github.com/spf13/cobra"
)

func kindsCommand(a *app) *cobra.Command {
	return group("kinds", "Move kinds gradually between relays and other workers of the table",
		kindsListCommand(a), kindsSetCommand(a))
}

// routeShare is what the route of a kind says of its share; false when it says nothing.
func (s *settings) routeShare(kind string) (int, bool) {
	if s.router == nil {
		return 0, false
	}
	return s.router.Share(kind)
}

// warnShares tells of routes that say another share than the table relay_kinds: that one holds.
func (s *settings) warnShares(ctx context.Context, store *claim.Store) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	shares, err := store.Shares(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("the shares of kinds can't be compared with the routes", "error", err)
	}
	for _, row := range shares {
		s.warnShare(row.Kind, row.Percent)
	}
}

func (s *settings) warnShare(kind string, percent int) {
	if says, ok := s.routeShare(kind); ok && says != percent {
		s.log.Warn("the route says another share than relay_kinds, which holds; relay kinds set changes it",
			"kind", kind, "share", percent, "route_share", says)
	}
}
