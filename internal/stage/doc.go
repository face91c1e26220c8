// Package stage sets up whole runs for tests: the relay as a process, the network between it and a server, and consumers
// that aren't the relay's own clients.
package stage
