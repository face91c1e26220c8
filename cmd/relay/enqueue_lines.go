package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/jobrelay/relay/outbox"
)

// Jobs are handed on in chunks of so many, or of so many bytes of lines.
const (
	chunkJobs  = 1000
	chunkBytes = 8 << 20
	// longestLine is a body of the largest size in base64, and the rest.
	longestLine = outbox.MaxPayload/3*4 + 1<<20
)

// jobLine is one line of standard input.
type jobLine struct {
	Kind        text            `json:"kind"`
	Key         *text           `json:"key"`
	Headers     json.RawMessage `json:"headers"`
	Payload     json.RawMessage `json:"payload"` // null is JSON null
	Body        *[]byte         `json:"body"`
	RunAt       *timeFlag       `json:"run_at"`
	Priority    int16           `json:"priority"`
	MaxAttempts int             `json:"max_attempts"`
}

// readJobs reads newline-delimited objects and adds them in chunks. Its errors name the line.
func readJobs(r io.Reader, add adder) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var jobs []outbox.Job
	var lines []int // of the jobs
	size := 0
	flush := func() error {
		err := add(jobs...)
		var bad *outbox.InvalidError
		if errors.As(err, &bad) {
			return fmt.Errorf("line %d: %s", lines[bad.Index], refusal(bad))
		}
		jobs, lines, size = jobs[:0], lines[:0], 0
		return err
	}
	for number := 1; ; number++ {
		line, end, err := readLine(in)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			job, err := parseJob(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			jobs, lines, size = append(jobs, job), append(lines, number), size+len(line)
		}
		if end || len(jobs) >= chunkJobs || size >= chunkBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// readLine returns the next line; end says that it was the last.
func readLine(in *bufio.Reader) (line []byte, end bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > longestLine:
			return nil, false, fmt.Errorf("is longer than %d bytes", longestLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return line, true, nil
		default:
			return line, false, err
		}
	}
}

func parseJob(raw []byte) (outbox.Job, error) {
	var l jobLine
	if !utf8.Valid(raw) {
		return outbox.Job{}, errors.New("is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return outbox.Job{}, lineError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return outbox.Job{}, errors.New("holds more than one object")
	}
	job := outbox.Job{Kind: string(l.Kind), Priority: l.Priority, MaxAttempts: l.MaxAttempts}
	if l.Key != nil {
		if job.Key = string(*l.Key); job.Key == "" {
			return job, errors.New("key is empty; leave it out for a job without a key")
		}
	}
	if l.RunAt != nil {
		job.RunAt = l.RunAt.t
	}
	if l.Payload != nil {
		job.Payload = l.Payload
	}
	if l.Body != nil {
		job.Body = *l.Body
	}
	return job, fillHeaders(&job, l.Headers)
}

// fillHeaders keeps numbers as they are written.
func fillHeaders(job *outbox.Job, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := whole(raw); err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&job.Headers); err != nil {
		return errors.New("headers must be an object")
	}
	return nil
}

// lineError words what the decoder says without the line's content.
func lineError(err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("is not a JSON object")
	case errors.As(err, &typ) && typ.Field == "":
		return errors.New("must be an object")
	case errors.As(err, &typ):
		return fmt.Errorf("%s can't be a JSON %s", typ.Field, typ.Value)
	}
	return errors.New(oneLine(trimJSON(err.Error())))
}

func trimJSON(s string) string { return string(bytes.TrimPrefix([]byte(s), []byte("json: "))) }

// text is a string whose escapes stand for characters. encoding/json turns half a surrogate pair into U+FFFD, so that
// something else would be stored than was written.
type text string

// UnmarshalJSON refuses what can't be kept.
func (t *text) UnmarshalJSON(raw []byte) error {
	if err := whole(raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, (*string)(t))
}

var escapes = regexp.MustCompile(`\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)`)

// whole refuses lone surrogates in the escapes of JSON text.
func whole(raw []byte) error {
	for _, e := range escapes.FindAll(raw, -1) {
		if code, err := strconv.ParseUint(string(e[2:]), 16, 32); len(e) == 6 && err == nil && code >= 0xd800 && code <= 0xdfff {
			return fmt.Errorf("the escape %s is half a surrogate pair", e)
		}
	}
	return nil
}

// UnmarshalText lets a line say a time as the flags do.
func (f *timeFlag) UnmarshalText(t []byte) error {
	if err := f.Set(string(t)); err != nil {
		return fmt.Errorf("run_at %w", err)
	}
	return nil
}
