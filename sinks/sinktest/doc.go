// Package sinktest is the suite that every sink passes against its real broker.
//
// A sink's test fills in a [Harness] and calls [Run]:
//
//	func TestSuite(t *testing.T) {
//		sinktest.Run(t, sinktest.Harness{Open: …, Address: …, Read: …, Missing: …, Outage: …})
//	}
//
// The cases say what the comments of [sinks.Sink] promise, one promise each, and they run in parallel. [Proxy] stands
// between a sink and its broker and makes the broker silent or takes it away. [Benchmark] measures a sink the same way
// for every broker.
//
// Some promises are checked in every call that any case makes: Publish leaves the batch as it was, fills every result
// with an error unless it is accepted, touches no result after it returned, and puts nothing of a payload or of a header's value
// into an error. A case also fails when goroutines that it started are still there after Close.
package sinktest
