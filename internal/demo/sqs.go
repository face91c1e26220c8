package demo

import (
	"context"
	"net/http"

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
	transport := http.DefaultTransport.(*http.Transport).Clone() // of its own, so that no connection stays open
	defer transport.CloseIdleConnections()
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithHTTPClient(&http.Client{Transport: transport})}
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
