// Package sinktest is the suite that every sink passes against its real broker.
package sinktest
