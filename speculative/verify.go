package speculative

import (
	"fmt"
	"slices"

	"github.com/sortes-llm/sortes/sampler"
)

// A Target answers for the target model at place i of a draft: after its first
// i tokens, 0 to all of them, or in a tree after the i-th and those that lead to
// it. It is asked with i that never falls, for as few as the rule needs, and not
// again after an error; of a tree of drawn tokens it is asked for the
// distributions of all places.
type Target interface {
	// Pick returns the token that the plain text has there.
	Pick(i int) (int32, error)
	// Dist makes dst the distribution of the next token there.
	Dist(dst *sampler.Dist, i int) error
}

// A Verifier applies rules to drafts. It owns scratch memory: after its first
// rounds it allocates nothing, and one goroutine at a time may use it. The zero
// Verifier is ready.
type Verifier struct {
	chance chance // nil is noise

	// The residual under way and the one kept of an earlier position.
	parts [2]residual
	byID  []float64 // probabilities by token, all 0 between uses
	tree  []level
	dists []sampler.Dist // of the target, by place of a tree
}

// Verify returns how many tokens of a draft stand under a rule, or of a tree the
// place up to which it stands, and the token that follows. A draft may be empty:
// the token is then the plain text's. at says the seed of the text and the
// position of its next token, where the draft begins.
//
// An error of the target after i tokens, where they stand, is returned with i
// accepted, so that the text keeps them: it ends there for another reason if
// one of them ends it. Other errors say what is wrong with rule or draft, and
// nothing stands.
func (v *Verifier) Verify(rule Rule, t Target, d Draft, at sampler.Draw) (accepted int, next int32, err error) {
	if err := rule.check(); err != nil {
		return 0, 0, err
	}
	if d.Parents != nil {
		if err := d.checkTree(); err != nil {
			return 0, 0, err
		}
	}
	if rule == Coupled || len(d.Dists) == 0 {
		if d.Parents != nil {
			node, next, err := Walk(d.tree(), func(node int) (int32, error) { return t.Pick(node + 1) })
			return node + 1, next, err
		}
		return coupled(t, d.Tokens)
	}
	if err := d.check(); err != nil {
		return 0, 0, err
	}
	if d.Parents != nil {
		return v.traverse(t, d, at)
	}
	if rule == Block {
		return v.block(t, d, at)
	}
	return v.token(t, d, at)
}

// coupled draws the plain text for as long as it is the draft.
func coupled(t Target, draft []int32) (accepted int, next int32, err error) {
	for {
		next, err = t.Pick(accepted)
		if err != nil || accepted == len(draft) || next != draft[accepted] {
			return accepted, next, err
		}
		accepted++
	}
}

// traverse judges a tree of drawn tokens by [Verifier.Traverse].
//
// As in block, an error of the target makes a smaller tree of it: what was drawn
// behind that place is left out, and what was drawn after the first of that.
func (v *Verifier) traverse(t Target, d Draft, at sampler.Draw) (place int, next int32, err error) {
	for len(v.dists) <= len(d.Tokens) {
		v.dists = append(v.dists, sampler.Dist{})
	}
	failed := map[int]error{}
	for i := 0; i <= len(d.Tokens); i++ {
		err := t.Dist(&v.dists[i], i)
		if err == nil {
			continue
		}
		if i == 0 {
			return 0, 0, err
		}
		failed[i] = err
		v.dists[i] = d.Dists[i-1] // any will do: what is drawn from it is not used
		if child := slices.Index(d.Parents, i-1); child >= 0 {
			d = d.first(child)
		}
	}
	node, next, err := v.Traverse(v.dists[:len(d.Tokens)+1], d.tree(), at)
	if err == nil {
		err = failed[node+1]
	}
	return node + 1, next, err
}

// token lets each token x stand with probability p(x)/q(x). The first that does
// not gives way to a draw from max(0, p - q).
func (v *Verifier) token(t Target, d Draft, at sampler.Draw) (accepted int, next int32, err error) {
	r := &v.parts[0]
	for i, x := range d.Tokens {
		if err := r.ask(t, i); err != nil {
			return i, 0, err
		}
		q := &d.Dists[i]
		if !v.random().below(testKey(at.Seed, at.Pos, i+1), r.p.ProbOf(x)/q.ProbOf(x)) {
			r.subtract(v, q, 1)
			return i, r.draw(v, residualKey(at.Seed, at.Pos+i)), nil
		}
	}
	next, err = t.Pick(len(d.Tokens))
	return len(d.Tokens), next, err
}

// block lets the longest beginning of the draft stand that passes its test,
// also where a shorter one has failed. With P the product of the ratios p/q
// along the draft, each product bounded by 1, the test of a beginning is passed
// with probability
//
//	S / (S + 1 - P), where S is the sum of max(0, P p - q) over the tokens that may follow it
//
// and P for the whole draft. A token drawn from max(0, P p - q) follows.
//
// An error of the target makes a shorter draft of it: whether it occurs depends
// only on the tokens before.
func (v *Verifier) block(t Target, d Draft, at sampler.Draw) (accepted int, next int32, err error) {
	product := 1.0
	r, kept := &v.parts[0], &v.parts[1]
	for i := 0; product > 0; i++ { // behind a product of 0 nothing stands
		if i < len(d.Tokens) {
			err = r.ask(t, i)
		}
		if i == len(d.Tokens) || err != nil {
			if v.random().below(testKey(at.Seed, at.Pos, i), product) {
				if err == nil {
					next, err = t.Pick(i)
				}
				return i, next, err
			}
			break
		}
		x, q := d.Tokens[i], &d.Dists[i]
		ratio := r.p.ProbOf(x) / q.ProbOf(x)
		if v.random().below(testKey(at.Seed, at.Pos, i), chanceOf(r.subtract(v, q, product), product)) {
			accepted = i
			r, kept = kept, r
		}
		product = min(1, product*ratio)
	}
	return accepted, kept.draw(v, residualKey(at.Seed, at.Pos+accepted)), nil
}

// chanceOf returns S / (S + 1 - P), and 1 where that is 0/0.
func chanceOf(sum, product float64) float64 {
	if sum == 0 && product == 1 {
		return 1
	}
	return sum / (sum + (1 - product)) // in this order exactly 1 where the product is
}

func (v *Verifier) random() chance {
	if v.chance == nil {
		return noise{}
	}
	return v.chance
}

// A residual is a distribution of the target, and what is left of it after a
// part of a draft's has been taken from it.
type residual struct {
	p       sampler.Dist
	weights []float64 // by index into p, in the order of ids
	sum     float64
}

// ask fills the distribution.
func (r *residual) ask(t Target, i int) error {
	if err := t.Dist(&r.p, i); err != nil {
		return err
	}
	if r.p.Len() == 0 {
		return fmt.Errorf("speculative: the target's distribution after %d drafted tokens is empty", i)
	}
	return nil
}

// subtract makes the weights max(0, product p - q), token by token, and returns
// their sum.
func (r *residual) subtract(v *Verifier, q *sampler.Dist, product float64) float64 {
	r.weights, r.sum = r.weights[:0], 0
	v.spread(q)
	for i := range r.p.Len() {
		x, p := r.p.ByID(i)
		w := max(0, product*p-v.prob(x))
		r.weights = append(r.weights, w)
		r.sum += w
	}
	v.unspread(q)
	return r.sum
}

// draw draws a token from the weights. Where nothing is left, p and q differ by
// rounding alone, and p serves.
func (r *residual) draw(v *Verifier, k key) int32 {
	if r.sum == 0 {
		r.weights = r.weights[:0]
		for i := range r.p.Len() {
			_, p := r.p.ByID(i)
			r.weights = append(r.weights, p)
			r.sum += p
		}
	}
	x, _ := r.p.ByID(v.random().choose(k, r.weights, r.sum))
	return x
}

// spread lays the probabilities of q out by token.
func (v *Verifier) spread(q *sampler.Dist) {
	for i := range q.Len() {
		x, p := q.ByID(i)
		id := int(x)
		if id >= len(v.byID) {
			v.byID = append(v.byID, make([]float64, id+1-len(v.byID))...)
		}
		v.byID[id] = p
	}
}

func (v *Verifier) prob(token int32) float64 {
	if int(token) < len(v.byID) {
		return v.byID[token]
	}
	return 0
}

func (v *Verifier) unspread(q *sampler.Dist) {
	for i := range q.Len() {
		x, _ := q.ByID(i)
		v.byID[x] = 0
	}
}
