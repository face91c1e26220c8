package sinks

import (
	"context"
	"errors"
	"time"
)

// ErrLate is why a message wasn't sent although a turn came before its call was over.
var ErrLate = errors.New("its turn came too late: under a quarter of the call's time was left")

// InTime says whether a turn that a call has waited for (a connection, a slot) is worth using: nil, [ErrLate], or the
// context's cause when it has ended. start is when the call began.
//
// A broker that needs its usual time would be cut off by the deadline otherwise: the outcome would be [Unknown] although
// the broker is well and only busy. What isn't sent for this reason is [Unavailable] with [ScopeMessage].
func InTime(ctx context.Context, start time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	deadline, ok := ctx.Deadline()
	if ok && time.Until(deadline) < deadline.Sub(start)/4 {
		return ErrLate
	}
	return nil
}
