package history

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// checkOrder: of each key of an ordered kind the first arrivals come in the order of ids, at every destination, copies
// apart from originals.
func (j *judge) checkOrder() {
	type line struct {
		to, kind, key string
		copies        bool
	}
	newest, seen := map[line]int64{}, map[line]map[int64]bool{}
	for _, a := range j.Arrivals {
		id := a.job(j.Source)
		row := j.rows[id]
		if row == nil || !j.Routes[row.Kind].Ordered || row.Key == "" {
			continue
		}
		at := line{a.To, row.Kind, row.Key, a.Replay != 0}
		if seen[at] == nil {
			seen[at] = map[int64]bool{}
		}
		if seen[at][id] {
			continue
		}
		seen[at][id] = true
		if id < newest[at] {
			j.add(Disorder, id, "%s: key %s: came first behind %d", a.To, row.Key, newest[at])
		}
		newest[at] = max(newest[at], id)
	}
}

// job is the row whose message it is, 0 when it is none.
func (a *Arrival) job(source string) int64 {
	if a.Replay != 0 {
		return a.Replay
	}
	id, _ := strconv.ParseInt(strings.TrimPrefix(a.ID, source+"/"), 10, 64)
	return id
}

// checkSides: of a shared kind, relays claim and deliver what they own, old workers the rest.
func (j *judge) checkSides(row *Row) {
	route := j.Routes[row.Kind]
	owned := !route.Shared || Owned(row.Key, row.ID, route.Share)
	for _, c := range j.changes[row.ID] {
		if c.To == "running" && (c.By != Old) != owned {
			j.add(Foreign, row.ID, "claimed by %s; the relays' share is %d %%", c.By, route.Share)
		}
	}
	if n := j.work[row.ID]; owned && n > 0 {
		j.add(Foreign, row.ID, "carried out %d times by old workers; it is the relays'", n)
	}
	if len(j.arrivals[row.ID]) > 0 && !owned {
		j.add(Foreign, row.ID, "delivered by a relay; it is the old workers'")
	}
}

// Owned is the published formula by which relays share a kind with old workers.
func Owned(key string, id int64, share int) bool {
	if key == "" {
		key = strconv.FormatInt(id, 10)
	}
	sum := md5.Sum([]byte(key))
	return binary.BigEndian.Uint32(sum[:4])%100 < uint32(share)
}

// checkReplays: each job of a replayed kind has one copy, no other job has one. That a copy arrives is checked as for
// any job.
func (j *judge) checkReplays() {
	for i := range j.Rows {
		row := &j.Rows[i]
		if row.ReplayOf != 0 {
			if of := j.rows[row.ReplayOf]; of == nil || of.Kind != row.Kind || of.ReplayOf != 0 {
				j.add(Replayed, row.ID, "a copy of %d, which is no job of its kind", row.ReplayOf)
			}
			continue
		}
		want := 0
		if j.Routes[row.Kind].Replayed {
			want = 1
		}
		if got := len(j.copies[row.ID]); got != want {
			j.add(Replayed, row.ID, "%d copies, want %d", got, want)
		}
	}
}

// checkTexts looks for canaries in whatever was let out, the table's errors included.
func (j *judge) checkTexts() {
	look := func(name, text string, job int64) {
		for what, canary := range j.Canaries {
			if canary != "" && strings.Contains(text, canary) {
				j.add(Leaked, job, "%s in %s", what, name)
			}
		}
	}
	for _, t := range j.Texts {
		look(t.Name, t.Text, 0)
	}
	for _, row := range j.Rows {
		look("last_error", row.LastError, row.ID)
	}
	for _, c := range j.Changes {
		look("last_error", c.Error, c.Job)
	}
}

// life tells a job's story, for a finding.
func (j *judge) life(job int64) string {
	var b strings.Builder
	if row := j.rows[job]; row != nil {
		fmt.Fprintf(&b, "created %s; ", row.Created.Format(time.TimeOnly+".000"))
	}
	for _, c := range j.changes[job] {
		fmt.Fprintf(&b, "%s %s: %s (%d) %.200s; ", c.At.Format(time.TimeOnly+".000"), c.By, c.To, c.Attempts, c.Error)
	}
	return b.String()
}
