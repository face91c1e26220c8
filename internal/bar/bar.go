// Package bar is the look of progress on a terminal, the same for every command.
package bar

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// New draws a bar of that length, or a spinner when the length isn't known (0).
func New(w io.Writer, length int64) *progressbar.ProgressBar {
	if length == 0 {
		length = -1
	}
	return progressbar.NewOptions64(length,
		progressbar.OptionSetWriter(w), progressbar.OptionUseANSICodes(true), progressbar.OptionSetWidth(24),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSpinnerType(14), progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "━", SaucerPadding: "─", BarStart: "", BarEnd: ""}))
}
