package sqs

import (
	"errors"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/jobrelay/relay/sinks"
)

// class is what an error code means for a message.
type class struct {
	outcome sinks.Outcome
	scope   sinks.Scope
}

var (
	unknown      = class{sinks.Unknown, sinks.ScopeSink}
	notSent      = class{sinks.Unavailable, sinks.ScopeSink}
	refusesAll   = class{sinks.Unavailable, sinks.ScopeSink}
	refusesQueue = class{sinks.Unavailable, sinks.ScopeAddress}
	rejected     = class{sinks.Rejected, sinks.ScopeMessage}
	failed       = class{sinks.Failed, sinks.ScopeMessage}
)

// codes are those that say more than "not this time". They may come for a call and for an entry.
var codes = map[string]class{
	"QueueDoesNotExist":    refusesQueue,
	"NonExistentQueue":     refusesQueue,
	"QueueDeletedRecently": refusesQueue,
	"InvalidAddress":       refusesQueue,
	"UnsupportedOperation": refusesQueue,

	"AccessDenied":          refusesQueue, // a policy may be the queue's own
	"AccessDeniedException": refusesQueue,
	"KmsAccessDenied":       refusesQueue,
	"KmsDisabled":           refusesQueue,
	"KmsInvalidKeyUsage":    refusesQueue,
	"KmsInvalidState":       refusesQueue,
	"KmsNotFound":           refusesQueue,
	"KmsOptInRequired":      refusesQueue,

	"RequestThrottled":                       refusesQueue,
	"RequestThrottledException":              refusesQueue,
	"RequestLimitExceeded":                   refusesQueue,
	"BandwidthLimitExceeded":                 refusesQueue,
	"LimitExceededException":                 refusesQueue,
	"TooManyRequestsException":               refusesQueue,
	"ProvisionedThroughputExceededException": refusesQueue,
	"OverLimit":                              refusesQueue,
	"KmsThrottled":                           refusesQueue,
	"SlowDown":                               refusesQueue,

	"AuthFailure":                         refusesAll,
	"ExpiredToken":                        refusesAll,
	"ExpiredTokenException":               refusesAll,
	"IncompleteSignature":                 refusesAll,
	"IncompleteSignatureException":        refusesAll,
	"InvalidAccessKeyId":                  refusesAll,
	"InvalidClientTokenId":                refusesAll,
	"InvalidSecurity":                     refusesAll,
	"InvalidSignatureException":           refusesAll,
	"MissingAuthenticationToken":          refusesAll,
	"MissingAuthenticationTokenException": refusesAll,
	"NotAuthorized":                       refusesAll,
	"OptInRequired":                       refusesAll,
	"RequestExpired":                      refusesAll,
	"SignatureDoesNotMatch":               refusesAll,
	"UnrecognizedClientException":         refusesAll,
	"UnknownOperationException":           refusesAll, // no SQS at that endpoint

	"BatchRequestTooLong":    rejected, // of a call that has only this message left
	"InvalidAttributeName":   rejected,
	"InvalidAttributeValue":  rejected,
	"InvalidMessageContents": rejected,
	"InvalidParameterValue":  rejected,
	"MessageTooLong":         rejected,
	"MissingParameter":       rejected,
}

// classify finds the class of a code. Codes come in the names of two protocols, with and without a prefix, and those of
// KMS in a third.
func classify(code string) (class, bool) {
	code = strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	if kms, ok := strings.CutPrefix(code, "KMS."); ok {
		code = "Kms" + strings.TrimPrefix(strings.TrimSuffix(kms, "Exception"), "Kms")
		if code == "KmsThrottling" {
			code = "KmsThrottled"
		}
	}
	if c, ok := codes[code]; ok {
		return c, true
	}
	if strings.HasPrefix(code, "Throttl") {
		return refusesQueue, true
	}
	return failed, false
}

// classifyCall says what an error of a whole call means, and whether the refusal may be about one of its entries only.
func classifyCall(err error, a *attempt) (c class, divisible bool) {
	if !a.connected.Load() {
		return notSent, false // no address, no connection, no TLS, no credentials
	}
	status := httpStatus(err)
	if c, known := classify(code(err)); known && status != 0 {
		return c, c == rejected
	}
	switch {
	case status == http.StatusTooManyRequests:
		return refusesQueue, false
	case status == http.StatusRequestEntityTooLarge:
		return rejected, true
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound,
		status == http.StatusMethodNotAllowed, status == http.StatusProxyAuthRequired, 300 <= status && status < 400:
		return refusesAll, false // whoever answers is not SQS, or not for us
	case 400 <= status && status < 500 && status != http.StatusRequestTimeout:
		return failed, true
	default:
		return unknown, false // a server in trouble, a reply that makes no sense, none at all
	}
}

// code is what the server said in one word, "" when it said nothing that makes sense.
func code(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) && api.ErrorCode() != wordless {
		return api.ErrorCode()
	}
	return ""
}

// wordless is the code that the SDK invents for an answer that has none.
const wordless = "UnknownError"

// httpStatus is that of the answer, 0 when there was none.
func httpStatus(err error) int {
	if response := (*awshttp.ResponseError)(nil); errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

// gone says whether an error means that the queue isn't where it was.
func gone(err error) bool {
	word := code(err)
	if r, ok := errors.AsType[*refusal](err); ok {
		word = r.code
	}
	switch strings.TrimPrefix(word, "AWS.SimpleQueueService.") {
	case "QueueDoesNotExist", "NonExistentQueue", "InvalidAddress":
		return true
	}
	return false
}

// denied says whether an error means that the queue is there, as far as we may see.
func denied(err error) bool { return strings.HasPrefix(code(err), "AccessDenied") }

// result makes the result of a class.
func (c class) result(err error) sinks.Result {
	return sinks.Result{Outcome: c.outcome, Scope: c.scope, Err: err}
}
