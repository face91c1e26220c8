// Package relay is the engine: it claims jobs, publishes them and settles each by what the broker said.
//
// The walk of one job:
//
//	claim     queue.Claim(ctx, gate)          → []claim.Lease         worker.go
//	hold      keep(ctx, leases)               → extends until settled keep.go
//	publish   router.match(kind) → messages   → sink.Publish          route.go, message.go, publish.go
//	          decide(delivery)                → claim.Outcome         verdict.go, the whole policy
//	settle    queue.Settle(ctx, outcomes)     → what was still ours   worker.go
//
// A lane is a set of workers for the routes that lead to the same sinks, so that a broker that hangs never holds a
// worker of another. A worker holds its batch from claim to settle. Destinations that are away pause (pause.go)
// without costing their jobs an attempt.
//
// The engine knows no broker and no SQL.
package relay
