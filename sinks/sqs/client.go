package sqs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"
)

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 50 * time.Second
	// fallbackRegion signs requests to an endpoint of one's own, which needs some region and doesn't care.
	fallbackRegion = "us-east-1"
)

// client is the SDK's client on a pool of connections that can be closed.
type client struct {
	*awssqs.Client
	pool *http.Transport
}

func newClient(settings Settings, log *slog.Logger) (*client, error) {
	base := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		// The default keeps ten idle connections and opens new ones all the time beyond that. Two more are for checks.
		t.MaxIdleConnsPerHost = settings.Parallel + 2
		t.MaxIdleConns = 0
		t.IdleConnTimeout = idleTimeout
		t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	})
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(base),
		awsconfig.WithLogger(logging.LoggerFunc(func(_ logging.Classification, format string, v ...any) {
			log.Debug("the AWS SDK says: " + fmt.Sprintf(format, v...))
		})),
	}
	if settings.Region != "" {
		options = append(options, awsconfig.WithRegion(settings.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(context.Background(), options...)
	if _, isURL := errors.AsType[*url.Error](err); isURL { // its text repeats the URL, which may hold a password or token
		return nil, errors.New("an address in AWS's variables or files is no URL")
	} else if err != nil {
		return nil, err
	}
	// The SDK may have added certificates (AWS_CA_BUNDLE) to the client that it was given.
	if changed, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		base = changed
	}
	pool := base.GetTransport()
	c := &client{pool: pool, Client: awssqs.NewFromConfig(cfg, func(o *awssqs.Options) {
		o.HTTPClient = &traced{&http.Client{Transport: pool, CheckRedirect: noRedirect}}
		// Whoever retries has to know what was taken: only the relay does.
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 1
		// The SDK's check turns one wrong entry into an error without results for all ten.
		o.DisableMessageChecksumValidation = true
		if settings.Endpoint != "" {
			o.BaseEndpoint = aws.String(settings.Endpoint)
		}
		if o.Region == "" && o.BaseEndpoint != nil {
			o.Region = fallbackRegion
		}
	})}
	if c.Options().Region == "" {
		return nil, errors.New("REGION: is needed, here or in AWS's usual variables (AWS_REGION) and files")
	}
	return c, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// attempt records how far a call came.
type attempt struct {
	made      atomic.Bool // the request is complete: it has an endpoint and a signature
	connected atomic.Bool // it may have reached the server
}

type attemptKey struct{}

// watched is ctx with an attempt in it, for one call.
func watched(ctx context.Context) (context.Context, *attempt) {
	a := new(attempt)
	return context.WithValue(ctx, attemptKey{}, a), a
}

// traced is the HTTP client of the calls to SQS. Those for credentials go another way, so that theirs don't count as
// an attempt.
type traced struct{ *http.Client }

// Do sends a request from bytes of its own. The SDK's body fails when it is read to its end after the answer has come,
// as happens with a fast server, and that closes the connection while the answer is read; and without a copy a request
// of which nothing could be written, on a connection that had just gone, isn't given another.
func (t *traced) Do(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.made.Store(true)
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			// A request is given another connection only when nothing of it went out on the first.
			GetConn: func(string) { a.connected.Store(false) },
			GotConn: func(httptrace.GotConnInfo) { a.connected.Store(true) },
		})
	}
	copied := r.WithContext(ctx)
	if r.Body != nil {
		var body bytes.Buffer
		body.Grow(max(0, int(r.ContentLength)) + bytes.MinRead)
		if _, err := body.ReadFrom(r.Body); err != nil {
			return nil, err
		}
		copied.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body.Bytes())), nil }
		copied.Body, _ = copied.GetBody()
	}
	return t.Client.Do(copied)
}
