// Package ops gives operators figures: what waits, what is dead, how far behind the relay is, and whether everything
// that it needs is in place.
//
// [Stats] reads the figures every few seconds and keeps the latest, so that neither a scrape nor the page ever asks
// the database. [NewStatus] shapes them as `relay status` and the page show them. [Preflight] is the database's
// half of `relay check`. All statements that touch jobs are package claim's.
package ops
