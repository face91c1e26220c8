package claim

import "slices"

// knownKey is a key of which nothing is unfinished below an id: all before was done by this process.
type knownKey struct {
	key   string
	above int64
}

// knownKeys is a queue of them. Each key is in it once: a claim that was given one twice could take its jobs with a gap.
type knownKeys struct {
	above map[string]int64
	line  []string
}

func (k *knownKeys) add(key string, above int64, most int) {
	if _, there := k.above[key]; !there {
		if len(k.line) >= most {
			return
		}
		if k.above == nil {
			k.above = map[string]int64{}
		}
		k.line = append(k.line, key)
	}
	k.above[key] = max(k.above[key], above)
}

// take takes known keys off the queue, those that have waited longest first.
func (k *knownKeys) take(n int) []knownKey {
	n = min(n, len(k.line))
	out := make([]knownKey, n)
	for i, key := range k.line[:n] {
		out[i] = knownKey{key, k.above[key]}
		delete(k.above, key)
	}
	k.line = slices.Delete(k.line, 0, n)
	return out
}
