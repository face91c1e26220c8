package demo

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
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
	// One request: no connection should stay open after it.
	once := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true })
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithHTTPClient(once)}
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
