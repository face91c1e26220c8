// Package migrations creates the table of jobs and all beside it in the database, or adopts a table that is in use.
//
// [Up] does both, [Status] tells how far it is, [SQL] prints what it would run, [Down] takes the newest step back. A relay
// asks [Check] at its start. [Retire] drops the indexes that only old workers need, once they have gone.
//
// The steps are the numbered files in sql, run by goose; docs/table.md describes what they build.
package migrations
