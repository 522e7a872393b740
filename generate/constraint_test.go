package generate

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// words is the table's vocabulary for a grammar.
type words struct{ tablemodel.Vocab }

func (w words) Size() int                    { return len(w.Pieces) }
func (w words) SpecialPiece(id int32) []byte { return w.Piece(id) }

func matcherOf(t *testing.T, gbnf string) *grammar.Matcher {
	t.Helper()
	g, err := grammar.Parse(gbnf, "root")
	require.NoError(t, err)
	m, err := g.Matcher(grammar.NewVocabulary(words{tablemodel.Words()}))
	require.NoError(t, err)
	return m
}

// guess drafts what the table's text will hardly be, and sometimes is.
type guess struct{}

func (guess) End(int) {}

func (guess) Draft(_ context.Context, t speculative.Text, n int) (speculative.Draft, error) {
	drafts := make([]int32, min(n, 3))
	for i := range drafts {
		drafts[i] = tablemodel.Text + int32(len(t.History)+i)%6
	}
	return speculative.Draft{Tokens: drafts}, nil
}

// Many texts of one grammar at once, with and without drafts: each is of the
// grammar and comes to its end where nothing else may follow.
func TestConstraint(t *testing.T) {
	m := matcherOf(t, `root ::= "é" [a-c]{1,4} ("#" "€"){2} "\n"?`)
	texts := map[string]map[uint64]string{}
	for _, d := range []*speculative.Cascade{nil, drafts(guess{})} {
		e := newEngine(t, tablemodel.New(tablemodel.Config{Sequences: 4}), Options{Drafts: d})
		found := map[uint64]string{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for seed := range uint64(20) {
			all.Go(func() {
				o := runRequest(t, t.Context(), e, Request{Prompt: bos(), Seed: seed, MaxTokens: 50, Sampling: sampler.Config{Temperature: 1, Constraint: m}})
				assert.NoError(t, o.err)
				assert.Equal(t, EndToken, o.stats.Finish)
				assert.Regexp(t, `^é[a-c]{1,4}#€#€\n?$`, o.text)
				mu.Lock()
				defer mu.Unlock()
				found[seed] = o.text
			})
		}
		all.Wait()
		texts[fmt.Sprint(d != nil)] = found
	}
	assert.Equal(t, texts["false"], texts["true"], "drafts change nothing")
	different := map[string]bool{}
	for _, text := range texts["true"] {
		different[text] = true
	}
	assert.Greater(t, len(different), 5)
	assert.False(t, m.Complete(), "the request's own is a clone")
}

func TestConstraintThatCannotGoOn(t *testing.T) {
	e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{})
	o := runRequest(t, t.Context(), e, Request{Prompt: bos(), MaxTokens: 5, Sampling: sampler.Config{Constraint: matcherOf(t, `root ::= "az"`)}})
	require.ErrorIs(t, o.err, sampler.ErrNoCandidates, "the vocabulary has no z")
	assert.EqualError(t, o.err, "generate: token 1 of the text: sampler: no token left to draw from after the constraint")
	assert.Equal(t, "a", o.text)
}
