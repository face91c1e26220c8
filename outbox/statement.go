package outbox

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed enqueue.sql
var enqueueSQL string

// defaultTable is the table of the zero [Client].
const defaultTable = "jobs"

// table is the client's table: its name, or schema and name.
func (c Client) table() (pgx.Identifier, error) {
	table := c.Table
	if table == "" {
		table = defaultTable
	}
	name := pgx.Identifier(strings.Split(table, "."))
	for _, part := range name {
		if part == "" || len(name) > 2 || textRule(part, 1, 63) != "" {
			return nil, fmt.Errorf("enqueue: table %s: must be a table's name, or schema.table", shorten(table))
		}
	}
	return name, nil
}

// statement returns the SQL for this client's table.
func (c Client) statement(maxAttempts bool) (string, error) {
	name, err := c.table()
	if err != nil {
		return "", err
	}
	notify := pgx.Identifier{"relay_notify"}
	if len(name) > 1 {
		notify = pgx.Identifier{name[0], "relay_notify"}
	}
	wake := " FROM " + notify.Sanitize() + "()"
	if c.NoNotify {
		wake = ""
	}
	text := oneLine(enqueueSQL, func(line string) bool { return maxAttempts || !strings.Contains(line, "-- when given") })
	return strings.NewReplacer("INTO jobs", "INTO "+name.Sanitize(), " FROM relay_notify()", wake).Replace(text), nil
}

// oneLine writes the lines of a statement that keep accepts as one, without comments.
func oneLine(sql string, keep func(line string) bool) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if text, _, _ := strings.Cut(line, "--"); strings.TrimSpace(text) != "" && keep(line) {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	return strings.Join(lines, " ")
}

// Bounds of one statement: more jobs are sent in several, one after another.
const (
	statementJobs  = 1000
	statementBytes = 8 << 20
)

// nextStatement returns how many of the rows go into the next statement. Those that leave max_attempts to the table
// don't share one with those that set it.
func nextStatement(rows []row) int {
	size := 0
	for i := range rows {
		size += rows[i].size()
		full := i == statementJobs || i > 0 && size > statementBytes
		if full || (rows[i].maxAttempts == 0) != (rows[0].maxAttempts == 0) {
			return i
		}
	}
	return len(rows)
}

// arguments writes the columns of the rows as array texts.
func arguments(rows []row) []any {
	var kind, key, payload, body, headers, runAt, priority, maxAttempts array
	for i := range rows {
		r := &rows[i]
		kind.text(&r.kind)
		key.text(r.key)
		payload.text(r.payload)
		body.bytes(r.body)
		headers.text(r.headers)
		runAt.text(r.runAt)
		priority.number(int64(r.priority))
		maxAttempts.number(int64(r.maxAttempts))
	}
	args := []any{kind.end(), key.end(), payload.end(), body.end(), headers.end(), runAt.end(), priority.end()}
	if rows[0].maxAttempts != 0 {
		args = append(args, maxAttempts.end())
	}
	return args
}

// array builds the text form of a Postgres array.
type array struct{ b strings.Builder }

func (a *array) next() {
	if a.b.Len() == 0 {
		a.b.WriteByte('{')
	} else {
		a.b.WriteByte(',')
	}
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (a *array) text(s *string) {
	a.next()
	if s == nil {
		a.b.WriteString("NULL")
		return
	}
	a.b.WriteByte('"')
	_, _ = escapes.WriteString(&a.b, *s)
	a.b.WriteByte('"')
}

func (a *array) bytes(p []byte) {
	if p == nil {
		a.text(nil)
		return
	}
	text := base64.StdEncoding.EncodeToString(p)
	a.text(&text)
}

func (a *array) number(n int64) {
	a.next()
	a.b.WriteString(strconv.FormatInt(n, 10))
}

func (a *array) end() string { return a.b.String() + "}" }
