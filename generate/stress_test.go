package generate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
)

// Many requests at once, some cancelled, some left, some hit by errors, in a
// cache that is too small for all: each gets its own text, or the beginning of
// it and an error that is its due.
func TestStress(t *testing.T) {
	for round := range 12 {
		random := rand.New(rand.NewPCG(1, uint64(round)))
		m := tablemodel.New(tablemodel.Config{
			Sequences:  1 + random.IntN(6),
			Context:    100,
			Batch:      6 + random.IntN(40),
			Cells:      []int{0, 101, 180}[random.IntN(3)],
			NoRollback: random.IntN(4) == 0,
			OnEval: func() hook {
				odds := rand.New(rand.NewPCG(2, uint64(round))) // the engine's goroutine is the only user
				return func(context.Context, int, []eval.Row) error {
					switch n := odds.IntN(200); {
					case n == 0:
						return errBoom
					case n < 4:
						return fmt.Errorf("full: %w", eval.ErrNoSlot)
					}
					return nil
				}
			}(),
		})
		o := Options{}
		if random.IntN(2) == 0 {
			o.Drafts = drafts(&oracle{mistakes: 1 + random.IntN(6)})
		}
		e := newEngine(t, m, o)
		all := requests(40)
		var group sync.WaitGroup
		for i, r := range all {
			how, after := random.IntN(6), random.IntN(20)
			group.Go(func() {
				want := simulate(tablemodel.Hashed(0), 100, r)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var stats Stats
				r.Stats = &stats
				text, n := "", 0
				var last error
				for token, err := range e.Stream(ctx, r) {
					if last = err; err != nil {
						continue
					}
					if !assert.Less(t, n, len(want.tokens)) {
						break
					}
					assert.Equal(t, want.tokens[n].ID, token.ID, "token %d of request %d", n, i)
					text += token.Text
					n++
					if n == after && how == 0 {
						cancel()
					}
					if n == after && how == 1 {
						break
					}
				}
				left := how == 1 && n == after && n > 0
				switch {
				case left:
					assert.True(t, strings.HasPrefix(want.text, text), "%q is left at %q", want.text, text)
					return
				case stats.Finish == Cancelled && how == 0:
					assert.ErrorIs(t, last, context.Canceled)
				case stats.Finish == Failed && errors.Is(last, eval.ErrNoSlot):
					assert.Zero(t, n)
				case stats.Finish == Failed:
					assert.ErrorIs(t, last, errBoom)
				case stats.Finish == ContextFull: // for want of room, as it looked
					assert.NoError(t, last)
				default:
					assert.NoError(t, last)
					assertSame(t, want, outcome{tokens: want.tokens[:n], text: text, stats: stats})
				}
				// Whatever ended it, nothing of the text is lost.
				if r.MaxTokens = n; n > 0 {
					assert.Equal(t, simulate(tablemodel.Hashed(0), 100, r).text, text, "request %d ended with %s", i, stats.Finish)
				}
			})
		}
		group.Wait()
		e.Close()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}
