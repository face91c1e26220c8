package label

import (
	"fmt"
	"testing"
	"unicode/utf8"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	var k Kinds
	for _, c := range []struct {
		kind, want string
		first      bool
	}{{"a", "a", true}, {"a", "a", false}, {"caf\xe9", "caf\uFFFD", true}, {"caf\xe8", "caf\uFFFD", false}} {
		if got, first := k.Of(c.kind); got != c.want || first != c.first {
			t.Errorf("%q: got %q, %v, want %q, %v", c.kind, got, first, c.want, c.first)
		}
	}
	for i := range 2 * MaxKinds {
		k.Of(fmt.Sprint(i))
	}
	if got, first := k.Of("late"); got != Other || first {
		t.Errorf("a kind too many: got %q, %v", got, first)
	}
	if got, _ := k.Of("a"); got != "a" {
		t.Errorf("an early kind: got %q", got)
	}
	if n := len(k.Known()); n != MaxKinds {
		t.Errorf("%d are known, want %d", n, MaxKinds)
	}
	for _, l := range k.Known() {
		if !utf8.ValidString(l) {
			t.Errorf("%q can't be a label", l)
		}
	}
}
