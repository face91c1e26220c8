// Package e2e tests whole relay processes on real brokers: what committed arrives, once, and nothing else, through
// kills, shutdowns, outages and silence. Producers write down what they committed and rolled back, consumers
// everything that arrived, and the table is the third witness.
package e2e
