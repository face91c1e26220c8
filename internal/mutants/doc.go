// Command mutants shows that the tests hold the promises: it makes one edit at a time that breaks a promise, and runs the
// tests that must fail then.
//
//	go run ./internal/mutants -list                # the edits, the promises that they break, the tests that must fail
//	go run ./internal/mutants -run 'fence|kafka'   # those whose names match
//
// The edits reach the compiler by go build's -overlay: no file of the tree is changed. An edit is killed when a test
// that it names fails, or ends the process with a panic. One that doesn't compile isn't, nor one whose tests fail without
// it. The exit code is 1 when any edit isn't killed. The tests want the services that `make mutants` starts.
package main
