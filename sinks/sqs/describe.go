package sqs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
)

// describe names what the server said, or what kept it from saying anything. The SDK's own text adds request ids and
// the name of the client, and of a request that was never made it may repeat what no log may have.
func describe(operation string, err error, a *attempt) error {
	if !a.made.Load() {
		return fmt.Errorf("sqs: %s: %w", operation, &unmade{detail(err)})
	}
	if api := smithy.APIError(nil); code(err) != "" && errors.As(err, &api) {
		return fmt.Errorf("sqs: %s: %w", operation, &refusal{code: api.ErrorCode(), message: api.ErrorMessage(), err: err})
	}
	if status := httpStatus(err); status >= 300 {
		return fmt.Errorf("sqs: %s: %w", operation, &refusal{code: fmt.Sprintf("HTTP %d", status), message: http.StatusText(status), err: err})
	}
	return fmt.Errorf("sqs: %s: %w", operation, err)
}

// unmade is the error of a request that was never made. It doesn't wrap the SDK's: that repeats what it was given to
// read, such as the output of a credential_process with the secret key in it, and its codes are those of other services.
type unmade struct{ detail string }

func (u *unmade) Error() string {
	return "no request was made: there are no AWS credentials, or AWS's variables and files don't fit" + u.detail +
		"; aws sts get-caller-identity, with the user and environment of the relay, shows why"
}

// detail is what of an SDK's error can't hold a secret: one word of another service, the file or host that can't be
// reached, how a process ended.
func detail(err error) string {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e.(type) {
		case *net.OpError, *net.DNSError, *tls.CertificateVerificationError, *fs.PathError, *exec.ExitError:
			return " (" + clip(e.Error()) + ")"
		}
	}
	switch word := code(err); {
	case plainCode.MatchString(word):
		return " (" + word + ")"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return " (not in time)"
	}
	return ""
}

var plainCode = regexp.MustCompile(`^[A-Za-z.]{1,60}$`)

// refusal is an error of the server in its own words.
type refusal struct {
	code, message string
	err           error
}

func (r *refusal) Error() string { return clip(r.code) + ": " + clip(r.message) }
func (r *refusal) Unwrap() error { return r.err }

// clip bounds what a server can put into logs and last_error. It ends with the line: after that a refused signature is
// explained by the whole request, with the session's token.
func clip(s string) string {
	const most = 300
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
