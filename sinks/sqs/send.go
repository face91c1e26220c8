package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/jobrelay/relay/sinks"
)

var errHeld = errors.New("sqs: not sent: an earlier message of its group wasn't accepted")

// run makes the calls of a strand. In a FIFO queue what follows a message that may yet come isn't sent, so that it
// can't overtake; one that was rejected never comes and holds nobody.
func (p *publication) run(b bound) {
	held := map[string]bool{}
	for _, c := range b.strand {
		var free call
		for _, e := range c {
			if held[e.group] {
				p.results[e.index] = sinks.Result{Outcome: sinks.Unavailable, Err: errHeld}
			} else {
				free = append(free, e)
			}
		}
		if len(free) == 0 {
			continue
		}
		p.send(b, free)
		for _, e := range free {
			if o := p.results[e.index].Outcome; e.dedup != "" && o != sinks.Accepted && o != sinks.Rejected {
				held[e.group] = true
			}
		}
	}
}

// send makes one call and fills the results of its entries.
func (p *publication) send(b bound, c call) {
	out, a, err := p.post(b, c)
	switch {
	case a == nil:
		for _, e := range c {
			p.results[e.index] = tooLate(err)
		}
		return
	case err != nil:
		p.refused(b, c, err, a)
		return
	}
	for i, r := range read(c, out) {
		e := c[i]
		p.results[e.index], p.silent[e.index] = r, r.Scope == sinks.ScopeSink && r.Outcome == sinks.Unknown
		if gone(r.Err) {
			p.queues.forget(b.address)
		}
	}
	if len(out.Successful)+len(out.Failed) > 0 {
		p.hearing.Heard()
	}
}

// post makes a call when its turn has come. The attempt is nil when it came too late.
func (p *publication) post(b bound, c call) (*awssqs.SendMessageBatchOutput, *attempt, error) {
	give, err := p.take()
	if err != nil {
		return nil, nil, err
	}
	defer give()
	in := &awssqs.SendMessageBatchInput{QueueUrl: &b.queue.url, Entries: make([]types.SendMessageBatchRequestEntry, len(c))}
	for i, e := range c {
		in.Entries[i] = e.request(i)
	}
	watching, a := watched(p.ctx)
	out, err := p.client.SendMessageBatch(watching, in)
	return out, a, err
}

// refused deals with an error of a whole call. One that may be about a single entry is narrowed down by halves: the
// server has taken nothing of what it refused.
func (p *publication) refused(b bound, c call, err error, a *attempt) {
	class, divisible := classifyCall(err, a)
	if class.scope != sinks.ScopeSink {
		p.hearing.Heard()
	}
	if divisible && len(c) > 1 {
		half := len(c) / 2
		p.send(b, c[:half])
		p.send(b, c[half:])
		return
	}
	if gone(err) {
		p.queues.forget(b.address)
	}
	err = withCause(p.ctx, describe("send to "+b.address, err, a))
	if class == rejected {
		err = fmt.Errorf("%w (%d bytes with its attributes; the limit as far as it is known is %d)", err, c[0].size, p.limit(b.queue))
	}
	for _, e := range c {
		p.results[e.index], p.silent[e.index] = class.result(err), class == unknown
	}
}

// read finds in a reply what became of each entry. Everything is told by ids, nothing by places; what isn't told, or
// told twice, isn't known.
func read(c call, out *awssqs.SendMessageBatchOutput) []sinks.Result {
	results := make([]sinks.Result, len(c))
	told := make([]int, len(c))
	tell := func(id *string, r func(i int) sinks.Result) {
		if i, err := strconv.Atoi(aws.ToString(id)); err == nil && i >= 0 && i < len(c) {
			results[i] = r(i)
			told[i]++
		}
	}
	for _, ok := range out.Successful {
		tell(ok.Id, func(i int) sinks.Result { return accepted(c[i], aws.ToString(ok.MD5OfMessageBody)) })
	}
	for _, bad := range out.Failed {
		tell(bad.Id, func(int) sinks.Result {
			class, _ := classify(aws.ToString(bad.Code))
			return class.result(fmt.Errorf("sqs: %w", &refusal{code: aws.ToString(bad.Code), message: aws.ToString(bad.Message)}))
		})
	}
	scope := sinks.ScopeMessage
	if len(out.Successful)+len(out.Failed) == 0 {
		scope = sinks.ScopeSink // a reply about nothing: whoever answers isn't working
	}
	for i, times := range told {
		if times != 1 {
			results[i] = sinks.Result{Scope: scope, Err: fmt.Errorf("sqs: the reply names the message %d times, not once", times)}
		}
	}
	return results
}

// accepted holds only when SQS has what was sent.
func accepted(e *entry, got string) sinks.Result {
	sum := md5.Sum([]byte(e.body))
	if want := hex.EncodeToString(sum[:]); got != want {
		return sinks.Result{Err: fmt.Errorf("sqs: the body arrived changed: its MD5 is %s, sent was %s", clip(got), want)}
	}
	return sinks.Result{Outcome: sinks.Accepted}
}
