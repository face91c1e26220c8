package demo

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Witness stands between the stdout sink and standard output: it reads each line that goes out and notes in the
// ledger which job it delivers. What it counts is what a consumer would have got.
type Witness struct {
	ledger *Ledger
	out    io.Writer

	mu   sync.Mutex
	part []byte // of a line that hasn't ended yet
}

// NewWitness returns a writer that passes everything on to out.
func NewWitness(l *Ledger, out io.Writer) *Witness { return &Witness{ledger: l, out: out} }

// Write passes p on, and notes the lines that it ends once they are out.
func (w *Witness) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.out.Write(p)
	w.part = append(w.part, p[:n]...)
	now := time.Now()
	for {
		line, rest, ended := bytes.Cut(w.part, []byte("\n"))
		if !ended {
			w.part = append(w.part[:0:0], w.part...)
			return n, err
		}
		if id, ok := jobID(line); ok {
			w.ledger.Delivered(id, now)
		}
		w.part = rest
	}
}

// jobID reads the id of the job out of a message's SOURCE/ID.
func jobID(line []byte) (int64, bool) {
	var message struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(line, &message) != nil {
		return 0, false
	}
	id, err := strconv.ParseInt(message.ID[strings.LastIndexByte(message.ID, '/')+1:], 10, 64)
	return id, err == nil
}
