package sinktest

import "time"

// SetPatience makes the suite give up sooner on a sink that is known to be broken.
func SetPatience(d time.Duration) { patience = d }
