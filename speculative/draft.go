package speculative

import (
	"context"
	"fmt"
	"slices"

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

	// Branches is in how many ways besides the first a draft may go on: a tree
	// has at most one leaf more. 0 is a draft without trees.
	Branches int

	// Weigh, where not nil, is for a drafter that pays for each token: it asks
	// before each, in order and after the tokens before it were drawn, with the
	// probability that its model gives the most likely one, filters and
	// temperature aside. It proposes a token there only if propose is true, and
	// another behind it only if goOn is.
	Weigh func(p float64) (propose, goOn bool)

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
//
// The places of a draft are 0, behind the text, and i behind its i-th token,
// counted from 1, and all that lead to it.
type Draft struct {
	Tokens []int32
	Dists  []sampler.Dist // none, or one for each token, which lists it

	// Parents, where not nil, makes it a tree: the tokens are the nodes of a
	// [Tree] in their order, and Parents are its. Children of a node are
	// different tokens, each drawn from what is left of the one distribution
	// that all of them name; [Tree.Draw] draws them.
	Parents []int
}

// tree returns a draft that is a tree as such.
func (d Draft) tree() *Tree {
	t := &Tree{Tokens: d.Tokens, Parents: d.Parents}
	if len(d.Dists) > 0 {
		t.Dists = make([]sampler.Dist, len(d.Tokens)+1)
		for i, p := range d.Parents {
			t.Dists[p+1] = d.Dists[i]
		}
	}
	return t
}

// checkTree reports what makes a draft with Parents no tree.
func (d Draft) checkTree() error {
	t := Tree{Tokens: d.Tokens, Parents: d.Parents}
	if err := t.check(); err != nil {
		return err
	}
	for i, x := range t.Tokens {
		if t.childBelow(t.Parents[i], x, i) >= 0 {
			return fmt.Errorf("speculative: node %d of a tree is token %d, as another child of its parent is", i, x)
		}
	}
	return nil
}

// Next returns the place behind a token that follows a place, and false where
// the draft does not have it.
func (d Draft) Next(place int, token int32) (int, bool) {
	if d.Parents == nil {
		return place + 1, place < len(d.Tokens) && d.Tokens[place] == token
	}
	t := Tree{Tokens: d.Tokens, Parents: d.Parents}
	child := t.childBelow(place-1, token, len(t.Tokens))
	return child + 1, child >= 0
}

// Continues reports whether the draft has a token behind a place.
func (d Draft) Continues(place int) bool {
	if d.Parents == nil {
		return place < len(d.Tokens)
	}
	return slices.Contains(d.Parents, place-1)
}

// Follow goes on from place 0 by tokens for as long as the draft has them. It
// returns how many it has, and the place behind them.
func (d Draft) Follow(tokens []int32) (n, place int) {
	for n < len(tokens) {
		next, ok := d.Next(place, tokens[n])
		if !ok {
			break
		}
		n, place = n+1, next
	}
	return n, place
}

// AppendPath appends to dst the tokens that lead to a place.
func (d Draft) AppendPath(dst []int32, place int) []int32 {
	if d.Parents == nil {
		return append(dst, d.Tokens[:place]...)
	}
	start := len(dst)
	for node := place - 1; node != Root; node = d.Parents[node] {
		dst = append(dst, d.Tokens[node])
	}
	slices.Reverse(dst[start:])
	return dst
}

// Layout makes dst the places of a tree's nodes in a batch; see [Tree.Layout].
// It panics where the draft is no tree.
func (d Draft) Layout(dst []Place) []Place {
	dst, err := d.tree().Layout(dst)
	if err != nil {
		panic(err.Error())
	}
	return dst
}

// leaves returns how many leaves a tree has.
func (d Draft) leaves() int {
	n := len(d.Tokens)
	for i, p := range d.Parents { // a node that has a child is none
		if p != Root && !slices.Contains(d.Parents[:i], p) {
			n--
		}
	}
	return n
}

// depth returns how many tokens of a tree follow one another at most.
func (d Draft) depth() int {
	deepest, depth := 0, make([]int, len(d.Tokens)+1)
	for i, p := range d.Parents {
		depth[i+1] = depth[p+1] + 1
		deepest = max(deepest, depth[i+1])
	}
	return deepest
}

// fit cuts a draft to at most n tokens and, where it is a tree, to so many
// branches besides the first.
func (d Draft) fit(n, branches int) (Draft, error) {
	if d.Parents != nil {
		if err := d.checkTree(); err != nil {
			return Draft{}, err
		}
	}
	d = d.first(n)
	for d.leaves()-1 > branches && d.Parents != nil {
		d = d.first(len(d.Tokens) - 1)
	}
	return d, nil
}

// first returns the first n tokens of a draft, or all.
func (d Draft) first(n int) Draft {
	n = min(n, len(d.Tokens))
	d.Tokens = d.Tokens[:n]
	if len(d.Dists) > 0 {
		d.Dists = d.Dists[:n]
	}
	if d.Parents != nil {
		d.Parents = d.Parents[:n]
	}
	return d
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
