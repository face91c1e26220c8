package claim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ClaimIndex names the index that the next claim of a kind would walk, as Postgres plans the claim's own statement under
// its own settings; "" when it would read the table or sort what it reads. Nothing is claimed.
func (s *Store) ClaimIndex(ctx context.Context) (string, error) {
	p := plan{rows: s.opt.BatchSize, branches: []branch{{pair: &pair{Pair: Pair{Kind: "relay.check"}}, floor: bottom, to: top, most: s.opt.BatchSize}}}
	args := append(p.args(), s.opt.BatchBytes, s.opt.Lease.Microseconds(), int64(1), []int64(nil), false)
	var out []struct{ Plan node }
	err := s.read(ctx, "EXPLAIN (FORMAT JSON) "+s.sql.claim, args, func(rows pgx.Rows) error {
		text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &out)
	})
	if err != nil {
		return "", fmt.Errorf("explain a claim: %w", err)
	}
	for _, top := range out {
		if locks := top.Plan.find("LockRows"); locks != nil && len(locks.Plans) == 1 {
			return locks.Plans[0].Index, nil
		}
	}
	return "", nil
}

// node is a step of a plan in the format JSON of EXPLAIN.
type node struct {
	Type  string `json:"Node Type"`
	Index string `json:"Index Name"`
	Plans []node
}

func (n *node) find(what string) *node {
	if n.Type == what {
		return n
	}
	for i := range n.Plans {
		if found := n.Plans[i].find(what); found != nil {
			return found
		}
	}
	return nil
}
