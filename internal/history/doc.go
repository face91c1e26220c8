// Package history judges a recorded run of relays: what producers committed, what consumers saw, what the database
// went through and which faults were injected, against what relay promises.
//
// Fill a [History] and give it to [Check]. The check is pure: it reads nothing else and changes nothing. A run without
// findings has lost nothing, invented nothing, and can explain every duplicate by a fault; what it counted is in the
// [Report].
package history
