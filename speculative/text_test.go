package speculative

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/sampler"
)

// A samplerTarget answers for a model given as a function, through a sampler,
// as the loop does.
type samplerTarget struct {
	logits  func(dst []float32, prefix []int32)
	row     []float32
	sampler *sampler.Sampler // its state is that after done drafts
	text    []int32          // drafts behind it
	start   int
	done    int
	seed    uint64
}

// at makes row the logits after i drafts, and returns the prefix.
func (t *samplerTarget) at(i int) []int32 {
	for ; t.done < i; t.done++ {
		t.sampler.Accept(t.text[t.start+t.done])
	}
	prefix := t.text[:t.start+i]
	t.logits(t.row, prefix)
	return prefix
}

func (t *samplerTarget) Pick(i int) (int32, error) {
	prefix := t.at(i)
	return t.sampler.Pick(t.row, prefix, sampler.Draw{Seed: t.seed, Pos: len(prefix)})
}

func (t *samplerTarget) Dist(dst *sampler.Dist, i int) error {
	prefix := t.at(i)
	return t.sampler.DistAt(dst, t.row, prefix, sampler.Draw{Seed: t.seed, Pos: len(prefix)})
}

// An author writes texts with a drafter.
type author struct {
	rule   Rule
	vocab  int
	logits func(dst []float32, prefix []int32)
	config sampler.Config
	prompt []int32
	n      int // tokens drafted in a round
	slot   int
	seed   uint64

	drafter Drafter // nil for none
	// after, where not nil, is called when a round has been judged.
	after func(d Draft, accepted int)

	ctx      context.Context
	drafting error // the error that ended drafting
	rounds   int
	drafted  int
	stood    int
}

// write writes a text of so many tokens or more, and returns so many.
func (a *author) write(t *testing.T, tokens int) []int32 {
	t.Helper()
	s, err := sampler.New(a.config)
	require.NoError(t, err)
	var v Verifier
	text := slices.Clone(a.prompt)
	row := make([]float32, a.vocab)
	ctx := a.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	a.drafting, a.rounds, a.drafted, a.stood = nil, 0, 0, 0
	for len(text) < len(a.prompt)+tokens {
		var d Draft
		if a.drafter != nil && a.drafting == nil {
			history := slices.Clone(text)
			d, a.drafting = a.drafter.Draft(ctx, Text{Slot: a.slot, History: history, PromptLen: len(a.prompt), Sampler: s, Seed: a.seed}, a.n)
			require.Equal(t, text, history, "the history is not changed")
			require.LessOrEqual(t, len(d.Tokens), a.n)
			if a.drafting != nil {
				require.Empty(t, d.Tokens)
			}
			for i := range history {
				history[i] = -1 // nor kept
			}
		}
		target := &samplerTarget{
			logits: a.logits, row: row, sampler: s.Clone(),
			text: slices.Concat(text, d.Tokens), start: len(text), seed: a.seed,
		}
		k, next, err := v.Verify(a.rule, target, d, sampler.Draw{Seed: a.seed, Pos: len(text)})
		require.NoError(t, err)
		if a.after != nil {
			a.after(d, k)
		}
		a.rounds++
		a.drafted += len(d.Tokens)
		a.stood += k
		// The state follows from the rows of the tokens that stay, in turn.
		settled := &samplerTarget{logits: a.logits, row: row, sampler: s, text: append(slices.Concat(text, d.Tokens[:k]), next), start: len(text), seed: a.seed}
		for i := range k + 1 {
			_, err := settled.Pick(i)
			require.NoError(t, err)
		}
		s.Accept(next)
		text = settled.text
	}
	if a.drafter != nil {
		a.drafter.End(a.slot)
	}
	return text[len(a.prompt):][:tokens]
}
