// Package bench measures the relay beside what it can't beat: the bare SQL of claiming and settling, and the bare chain
// of claim, one produce request and settlement. Rounds of each are interleaved in one run, since absolute rates wobble
// and ratios don't.
//
//	make bench PACKAGES=./internal/bench
package bench
