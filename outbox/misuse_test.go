package outbox_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobrelay/relay/outbox"
)

var (
	_ outbox.Tx    = pgx.Tx(nil)
	_ outbox.Tx    = (*pgxpool.Tx)(nil)
	_ outbox.SQLTx = (*sql.Tx)(nil)
)

// A job must not be inserted outside of a transaction by mistake: the compiler refuses a pool or a connection.
func TestOnlyTransactionsCompile(t *testing.T) {
	t.Parallel()
	const source = "testdata/misuse/misuse.go"
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "./testdata/misuse").CombinedOutput()
	if err == nil {
		t.Fatal("all of it compiles")
	}
	for i, line := range strings.Split(string(text), "\n") {
		got := strings.Contains(string(output), fmt.Sprintf("misuse.go:%d:", i+1))
		if want := strings.HasSuffix(line, "// refused"); got != want {
			t.Errorf("line %d, %q: refused %v, want %v\n%s", i+1, strings.TrimSpace(line), got, want, output)
		}
	}
}
