// Package chaos runs several relays on real servers of its own, breaks whatever can break, in an order that a seed
// decides, and has package history judge what everybody saw.
//
//	make chaos SEED=7
//
// The seed decides the jobs and the faults; how long each takes, and so what exactly each fault hits, the machine does.
//
//	make soak
//
// runs the same world for longer at a steady rate, and looks at what may not add up instead.
package chaos
