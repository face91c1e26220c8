package sqs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/jobrelay/relay/sinks"
)

const canary = "CANARYsecret7Q"

// says collects all that a sink lets out about three addresses, and wants each to be an outage of the whole sink.
func says(t *testing.T, s sinks.Sink) string {
	t.Helper()
	var all []string
	for _, address := range []string{"q", "https://sqs.eu-west-1.amazonaws.com/000000000000/q"} {
		results := publish(t, s, messages(address, 1))
		want(t, results, 0, sinks.Unavailable, sinks.ScopeSink, "aws sts get-caller-identity")
		all = append(all, fmt.Sprintf("%+v", results[0].Err))
	}
	for _, address := range []string{"", "q", "https://sqs.eu-west-1.amazonaws.com/000000000000/q"} {
		if err := s.Check(t.Context(), address); err == nil {
			t.Errorf("Check(%q) passed without credentials", address)
		} else {
			all = append(all, fmt.Sprintf("%+v", err))
		}
	}
	return strings.Join(all, "\n")
}

// A profile whose credential_process prints a warning before its JSON: the SDK's error is all that it printed.
func TestCredentialProcessStaysSecret(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	for name, c := range map[string]struct{ script, told string }{
		"warns": {"echo warning: the token expires soon; echo '{\"Version\": 1, \"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"" + canary + "\"}'", ""},
		"fails": {"echo " + canary + "; exit 3", "exit status 3"},
	} {
		script := filepath.Join(dir, name)
		write(t, script, "#!/bin/sh\n"+c.script+"\n")
		write(t, filepath.Join(dir, "config"), "[default]\nregion = eu-west-1\ncredential_process = "+script+"\n")
		f := newFake(t, func(*fake) {})
		if text := says(t, start(t, f, func(s *Settings) { s.Region = "" })); strings.Contains(text, canary) || !strings.Contains(text, c.told) {
			t.Errorf("%s: want %q and no secret in\n%s", name, c.told, text)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// Whatever keeps a request from being made says only what can't be secret. A refusal by another service isn't one by SQS.
func TestUnmadeRequests(t *testing.T) {
	t.Parallel()
	for told, cause := range map[string]error{
		"":                                   errors.New(canary),
		"(AccessDenied)":                     &smithy.GenericAPIError{Code: "AccessDenied", Message: canary},
		"(QueueDoesNotExist)":                &smithy.GenericAPIError{Code: "QueueDoesNotExist", Message: canary},
		"fit; aws":                           &smithy.GenericAPIError{Code: canary, Message: canary},
		"(dial tcp: no route to host)":       fmt.Errorf(canary+" %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}),
		"(open /token: file does not exist)": fmt.Errorf(canary+" %w", &fs.PathError{Op: "open", Path: "/token", Err: fs.ErrNotExist}),
		"(not in time)":                      fmt.Errorf(canary+" %w", context.DeadlineExceeded),
	} {
		f := newFake(t, func(*fake) {})
		c := &client{pool: nil, Client: awssqs.New(awssqs.Options{
			HTTPClient: inMemory{f}, BaseEndpoint: aws.String("http://sqs.invalid"), Region: "r", Retryer: aws.NopRetryer{}, RetryMaxAttempts: 1,
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, cause }),
		})}
		if text := says(t, newSink(Settings{MaxBytes: 1 << 20, Parallel: 1}, c, slog.New(slog.DiscardHandler))); strings.Contains(text, canary) || !strings.Contains(text, told) {
			t.Errorf("%v: want %q and no secret in\n%s", cause, told, text)
		}
	}
}

// A refused signature is explained by the whole request, the session's token in it.
func TestRefusedSignatureStaysSecret(t *testing.T) {
	t.Parallel()
	explained := "The request signature we calculated does not match.\n\nThe Canonical String should have been\n'POST\n/\n\nx-amz-security-token:" + canary + "'"
	f := newFake(t, func(f *fake) {
		f.call = func(action string, _ *fakeRequest) *fakeReply {
			if action == "SendMessageBatch" {
				return refuse(403, "SignatureDoesNotMatch", explained)
			}
			return nil
		}
	})
	results := publish(t, start(t, f, func(*Settings) {}), messages(f.create("q"), 1))
	want(t, results, 0, sinks.Unavailable, sinks.ScopeSink, "does not match")
	if text := results[0].Err.Error(); strings.Contains(text, canary) {
		t.Errorf("got %s", text)
	}
}

// What can't work is told at the start, without what it holds.
func TestOpenStaysSecret(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := (&Settings{}).Open("sqs", log); err == nil || !strings.Contains(err.Error(), "REGION") {
		t.Errorf("no region: got %v", err)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://user:"+canary+"@[::1/x")
	if _, err := (&Settings{Region: "eu-west-1"}).Open("sqs", log); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("a broken URL: got %v", err)
	}
}
