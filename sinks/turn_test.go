package sinks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobrelay/relay/sinks"
)

func TestInTime(t *testing.T) {
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		limit, wait time.Duration
		cancel      bool
		want        error
	}{
		"at once":            {limit: 4 * time.Second},
		"half is left":       {limit: 4 * time.Second, wait: 2 * time.Second},
		"less than half is":  {limit: 4 * time.Second, wait: 2*time.Second + 1, want: sinks.ErrLate},
		"over":               {limit: 4 * time.Second, wait: 4 * time.Second, want: context.DeadlineExceeded},
		"called off":         {limit: 4 * time.Second, cancel: true, want: gone},
		"without a deadline": {wait: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, start := t.Context(), time.Now()
				if c.limit > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, c.limit)
					defer stop()
				}
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				if c.cancel {
					cancel(gone)
				}
				time.Sleep(c.wait)
				synctest.Wait()
				if err := sinks.InTime(ctx, start); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}
