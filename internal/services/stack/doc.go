// Package stack starts one set of all the services that relay's tests need, and describes it by the RELAY_TEST_*
// variables that package services reads.
package stack
