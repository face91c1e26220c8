// Package demo has the parts of `relay demo`: a database, a small shop that writes orders and jobs, the places at each
// broker, and a ledger that compares what was committed with what was delivered.
//
//	db, err := demo.OpenDatabase(ctx, …)      // private, or a schema of its own in a given one
//	ledger := demo.NewLedger()
//	witness := demo.NewWitness(ledger, out)   // the writer of the stdout sink: it reads every line that is delivered
//	err = demo.Shop{…}.Run(ctx)               // orders and jobs in one transaction; a third rolls back
//	summary := ledger.Summary(…)
//
// The relay between the two is the real one; cmd/relay wires them.
package demo
