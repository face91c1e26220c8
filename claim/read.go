package claim

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// reader decodes a claim's rows from the wire, binary or text as the exec mode has it, into one arena. pgx's own
// scanning copies each value by itself, and parses JSON once more to see that it is JSON.
type reader struct {
	types  *pgtype.Map
	fields []pgconn.FieldDescription
	arena  arena
	kinds  map[string]string // one string per kind
	row    [][]byte
	fault  error
}

// readLeases reads all rows, and how many rows the claim locked. A row that can't be decoded is returned with the
// reason in Fault: it must not stop the others. Rows without an id aren't jobs: looked reads them.
func readLeases(rows pgx.Rows, token int64, until time.Time, looked func(pgx.Rows) error) (leases []Lease, locked int, err error) {
	r := reader{kinds: map[string]string{}}
	for rows.Next() {
		r.row, r.fault = rows.RawValues(), nil
		if r.row[0] == nil {
			if err := looked(rows); err != nil {
				return nil, 0, err
			}
			continue
		}
		if leases == nil {
			r.types, r.fields = rows.Conn().TypeMap(), rows.FieldDescriptions()
			locked = int(r.int(14))
			leases = make([]Lease, 0, locked)
		}
		l := r.lease()
		l.Token, l.Until, l.Fault = token, until, r.fault
		leases = append(leases, l)
	}
	return leases, locked, rows.Err()
}

// lease decodes the columns in the order of claim.sql.
func (r *reader) lease() Lease {
	l := Lease{
		ID:          r.int(0),
		Kind:        r.kind(1),
		Priority:    int16(r.int(3)),
		Payload:     r.text(4),
		Body:        r.bytes(5),
		Headers:     r.text(6),
		Attempt:     int(r.int(7)),
		MaxAttempts: int(r.int(8)),
		Alone:       r.bool(9),
		Delivered:   r.list(10),
		RunAt:       r.time(12),
		CreatedAt:   r.time(13),
	}
	if r.row[2] != nil {
		key := string(r.row[2])
		l.Key = &key
	}
	if r.row[11] != nil {
		id := r.int(11)
		l.ReplayOf = &id
	}
	return l
}

func (r *reader) binary(col int) bool { return r.fields[col].Format == pgtype.BinaryFormatCode }

// broken notes the first column of a row that can't be decoded.
func (r *reader) broken(col int, err error) {
	if r.fault == nil {
		r.fault = fmt.Errorf("column %s can't be read: %w", r.fields[col].Name, err)
	}
}

// int decodes any integer type; 0 for NULL.
func (r *reader) int(col int) int64 {
	b := r.row[col]
	if b == nil {
		return 0
	}
	if !r.binary(col) {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			r.broken(col, err)
		}
		return n
	}
	switch len(b) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	}
	r.broken(col, fmt.Errorf("%d bytes, want an integer", len(b)))
	return 0
}

func (r *reader) bool(col int) bool {
	b := r.row[col]
	return len(b) == 1 && (b[0] == 1 || b[0] == 't')
}

func (r *reader) kind(col int) string {
	if s, ok := r.kinds[string(r.row[col])]; ok {
		return s
	}
	s := string(r.row[col])
	r.kinds[s] = s
	return s
}

// text copies a value of type text, which is the same in both formats; nil for NULL.
func (r *reader) text(col int) []byte {
	if r.row[col] == nil {
		return nil
	}
	return r.arena.copy(r.row[col])
}

func (r *reader) bytes(col int) []byte {
	b := r.row[col]
	if b == nil || r.binary(col) {
		return r.text(col)
	}
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		r.broken(col, fmt.Errorf("not in hex format"))
		return nil
	}
	out := r.arena.take(hex.DecodedLen(len(b) - 2))
	if _, err := hex.Decode(out, b[2:]); err != nil {
		r.broken(col, err)
	}
	return out
}

// epoch2000 is where Postgres counts from.
var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// time decodes a timestamptz; zero for NULL, and for the infinities, which no broker can be told.
func (r *reader) time(col int) time.Time {
	b := r.row[col]
	if b == nil {
		return time.Time{}
	}
	if r.binary(col) && len(b) == 8 {
		switch us := int64(binary.BigEndian.Uint64(b)); us {
		case math.MinInt64, math.MaxInt64:
			return time.Time{}
		default:
			return time.UnixMicro(us + epoch2000).UTC()
		}
	}
	var t pgtype.Timestamptz
	if err := r.types.Scan(pgtype.TimestamptzOID, r.fields[col].Format, b, &t); err != nil {
		r.broken(col, err)
	}
	if t.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return t.Time.UTC()
}

// list decodes a text[]; elements that are NULL are left out.
func (r *reader) list(col int) []string {
	if r.row[col] == nil {
		return nil
	}
	var a pgtype.FlatArray[pgtype.Text]
	if err := r.types.Scan(pgtype.TextArrayOID, r.fields[col].Format, r.row[col], &a); err != nil {
		r.broken(col, err)
		return nil
	}
	var out []string
	for _, e := range a {
		if e.Valid {
			out = append(out, e.String)
		}
	}
	return out
}

// arena hands out slices of a few large blocks. What was handed out is never reused.
type arena struct{ block []byte }

const (
	leastBlock = 16 << 10
	mostBlock  = 1 << 20
)

func (a *arena) take(n int) []byte {
	if n > cap(a.block)-len(a.block) {
		if n > mostBlock/4 {
			return make([]byte, n)
		}
		a.block = make([]byte, 0, max(n, min(max(2*cap(a.block), leastBlock), mostBlock)))
	}
	from := len(a.block)
	a.block = a.block[:from+n]
	return a.block[from : from+n : from+n]
}

func (a *arena) copy(b []byte) []byte {
	out := a.take(len(b))
	copy(out, b)
	return out
}
