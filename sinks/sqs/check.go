package sqs

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/jobrelay/relay/sinks"
)

// Check asks for the queue and its limit; without an address, for any answer to us. It looks, and writes nothing:
// whether sending is permitted shows only when something is sent.
func (s *sink) Check(ctx context.Context, address string) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return fmt.Errorf("sqs: check %q: %w", address, err)
	}
	defer leave()
	if address == "" {
		return s.checkEndpoint(ctx)
	}
	if err := s.settings.CheckAddress(address); err != nil {
		return err
	}
	return s.queues.check(ctx, address)
}

// checkEndpoint passes also when listing isn't permitted, as it needn't be: then the endpoint has answered us.
func (s *sink) checkEndpoint(ctx context.Context) error {
	call, a := watched(ctx)
	_, err := s.client.ListQueues(call, &awssqs.ListQueuesInput{MaxResults: aws.Int32(1)})
	if err == nil {
		return nil
	}
	if c, _ := classifyCall(err, a); code(err) != "" && c.scope != sinks.ScopeSink {
		return nil
	}
	return withCause(ctx, describe("check the endpoint", err, a))
}
