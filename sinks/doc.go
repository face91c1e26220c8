// Package sinks is the seam between the relay and the brokers.
//
// A [Message] is what a broker sees of a job. A [Sink] publishes a batch of them and says of each one what the
// broker said, as a [Result]. It classifies and decides nothing: the relay turns results into verdicts, and only the
// relay tries again.
//
// To add a broker: write a package whose Settings type implements [Settings], run [sinktest] against the real
// server, and add its [Type] to the list in cmd/relay.
//
// [sinktest]: https://pkg.go.dev/github.com/jobrelay/relay/sinks/sinktest
package sinks
