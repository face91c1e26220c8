// Package claim holds every statement that changes a job: claim, extend, settle, reap, clean up, and an operator's
// requeue and discard.
//
// A [Store] knows one jobs table. A [Queue] is one relay process's view of the jobs that are due: it knows the
// (kind, priority) pairs, how far down each was already walked (the floor), and sweeps what lies below.
//
//	leases, err := queue.Claim(ctx, gate)      // due jobs, under a lease
//	lost, err := queue.Extend(ctx, leases)     // while they are in flight
//	lost, err := queue.Settle(ctx, outcomes)   // what became of them, fenced by their tokens
//	report, err := queue.Sweep(ctx)            // once a second
//
// The statements are in the .sql files beside this text, each with the reason for its form; docs/decisions has the
// measurements. Only the database's clock decides what is due or expired.
package claim
