package demo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/jobrelay/relay/config"
)

type sqsSettings struct {
	Endpoint string `env:"ENDPOINT"`
	Region   string `env:"REGION"`
}

func createQueue(ctx context.Context, env config.Environ) error {
	var s sqsSettings
	if err := decode(env, "sqs", &s); err != nil {
		return err
	}
	var options []func(*awsconfig.LoadOptions) error
	if s.Region != "" {
		options = append(options, awsconfig.WithRegion(s.Region))
	}
	c, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return err
	}
	client := sqs.NewFromConfig(c, func(o *sqs.Options) {
		if s.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.Endpoint)
		}
	})
	_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(Place)})
	return err
}
