package speculative

import (
	"context"
	"fmt"

	"github.com/sortes-llm/sortes/sampler"
)

// A Drafter proposes how texts go on. It serves all texts of an engine, from
// one goroutine at a time.
//
// A draft only decides how many tokens one evaluation of the target yields,
// never which: with [Coupled] a Drafter may propose anything. With the other
// rules so may one of certain proposals; one that draws from distributions
// draws as [Rule.Draw] does.
//
// How many tokens it proposes may depend on the text, on tokens that it has
// proposed, on what the model said of them and on the time. It must not leave
// out a token because of what was drawn: a token once drawn is proposed, and
// may be the last.
type Drafter interface {
	// Draft proposes at most n tokens, n at least 1, to follow t.History. None
	// is a good answer. An error ends drafting for the text, not the text;
	// whatever it is, the drafter stays usable.
	Draft(ctx context.Context, t Text, n int) (Draft, error)

	// End tells that the text in a slot is over.
	End(slot int)
}

// A Reader is a [Drafter] that reads a text before it drafts for it. What it has
// not read of a text it reads with its next draft.
type Reader interface {
	// Read reads the history. Its error is no more than a reason to log: the
	// next Draft starts over.
	Read(ctx context.Context, t Text) error
}

// A Text is what a drafter is told of a text under way.
type Text struct {
	// Slot is the number of the text among those under way: 0 or more, below
	// the number of sequences of the engine. A drafter keeps what it knows of
	// a text by slot, from its first Draft until End.
	Slot int

	// History holds the tokens so far, prompt included, at least one. Between
	// two calls for a slot without End between them it only grows. It must not
	// be changed, nor kept.
	History   []int32
	PromptLen int // how many of them are the prompt

	// Sampler is the text's own, in the state after History, and the same one
	// until End. A drafter that draws from it works on a Clone. Seed is the
	// seed of its draws.
	Sampler *sampler.Sampler
	Seed    uint64
}

// A Draft is a proposal: the tokens in order, and the distribution that each
// was drawn from. No Dists means certain proposals, each with probability 1.
// It belongs to the drafter, and is valid until the next call of Draft or End
// for the slot.
type Draft struct {
	Tokens []int32
	Dists  []sampler.Dist // none, or one for each token, which lists it
}

// check reports what no ratio test can judge.
func (d Draft) check() error {
	if len(d.Dists) != len(d.Tokens) {
		return fmt.Errorf("speculative: %d drafted tokens come with %d distributions, want one for each or none", len(d.Tokens), len(d.Dists))
	}
	for i, x := range d.Tokens {
		if d.Dists[i].Index(x) < 0 {
			return fmt.Errorf("speculative: drafted token %d is %d, which its distribution does not list", i, x)
		}
	}
	return nil
}
