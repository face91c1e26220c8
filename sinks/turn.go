package sinks

import (
	"context"
	"errors"
	"time"
)

// ErrLate is why a message wasn't sent although a turn came before its call was over.
var ErrLate = errors.New("its turn came too late: over half of the call's time had gone")

// InTime says whether a turn that a call has waited for (a connection, a slot) is worth using: nil, [ErrLate] when less
// than half of the time since start is left, or the context's cause when it has ended. start is when the call began.
//
// Whoever had the turn before may have needed all the time that was waited. With less than that left the deadline would
// cut off a broker that is well and only slow: the outcome would be [Unknown], and everything would pause. What isn't sent
// for this reason is [Unavailable] with [ScopeMessage].
func InTime(ctx context.Context, start time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < time.Since(start) {
		return ErrLate
	}
	return nil
}
