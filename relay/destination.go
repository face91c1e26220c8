package relay

import (
	"fmt"
	"strings"
)

// Destination is one place that routes lead to.
type Destination struct {
	Text    string // as the route writes it: its name in delivered, metrics and filters
	Sink    string
	Address string // "" when it depends on the job
	Fixed   bool   // all jobs share the address
	Parent  string // the wider place that all jobs share, as [sinks.Parented] names it; "" when there is none
}

// destination is one place a route leads to. Its text, as written in the route, is its name in delivered, metrics
// and filters; the address becomes concrete with each job.
type destination struct {
	text    string
	sink    string
	address template
	parent  string  // the wider place that all jobs share, "" when there is none
	places  []place // all that they share, the widest first
}

// fixed returns the address when all jobs share it.
func (d *destination) fixed() (string, bool) {
	if !d.address.fixed() {
		return "", false
	}
	address, err := d.address.expand(nil, nil)
	return address, err == nil
}

// Addresses are what a sink knows of its addresses, as [sinks.Settings] and [sinks.Parented] have it.
type Addresses struct {
	Check  func(address string) error  // why one can never be valid, which is the job's fault; nil: all are
	Parent func(address string) string // the wider place that one lies in, "" is none; nil: there are none
}

func (a Addresses) check(address string) error {
	if a.Check == nil {
		return nil
	}
	return a.Check(address)
}

func (a Addresses) parent(address string) string {
	if a.Parent == nil {
		return ""
	}
	return a.Parent(address)
}

func compileDestination(text string, addresses map[string]Addresses) (*destination, error) {
	sink, address, ok := strings.Cut(text, ":")
	if !ok || sink == "" {
		return nil, fmt.Errorf("a destination is written sink:address, as in kafka:orders")
	}
	rules, known := addresses[sink]
	if !known {
		return nil, fmt.Errorf("there is no sink %q", sink)
	}
	t, err := compileTemplate(address)
	if err != nil {
		return nil, err
	}
	sample := t.sample(sampleValue)
	if err := rules.check(sample); err != nil && !t.fixed() {
		return nil, fmt.Errorf("with %s for each value of the job: %w", sampleValue, err)
	} else if err != nil {
		return nil, err
	}
	d := &destination{text: text, sink: sink, address: t}
	if parent := rules.parent(sample); parent == rules.parent(t.sample(otherValue)) { // no value of a job is in it
		d.parent = parent
	}
	fixed, _ := d.fixed()
	d.places = around(sink, d.parent, fixed)
	return d, nil
}
