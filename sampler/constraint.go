package sampler

import (
	"fmt"
	"math"
	"slices"
)

// A Constraint says which tokens may come next, such as a grammar does. It
// stands before the chain: the filters see a row in which all other tokens are
// banned.
//
// It follows one text. [New] and [Sampler.Clone] clone it, [Sampler.Accept]
// moves it on, so that a value in a [Config] stays as it is and serves any
// number of samplers. A sampler with a constraint thus must hear of each token
// of the text by Accept; those of the prompt are not among them.
type Constraint interface {
	// Allow appends to dst those of the tokens, in their order, that may come
	// next. It must not keep either slice. Its error ends the call that sampled.
	Allow(dst, tokens []int32) ([]int32, error)

	// Accept moves on by one token. An error is kept by the sampler, and
	// ends its next call.
	Accept(token int32) error

	// Clone returns a Constraint at the same place that goes its own way.
	Clone() any
}

// cloneConstraint returns a clone, nil for nil.
func cloneConstraint(c Constraint) (Constraint, error) {
	if c == nil {
		return nil, nil
	}
	n, ok := c.Clone().(Constraint)
	if !ok {
		return nil, fmt.Errorf("sampler: the clone of a %T is no Constraint", c)
	}
	return n, nil
}

// A gate is the constraint of a call. To ban all that it forbids it must look
// at every token; often it is enough that it looks at a few. Which of both
// happens makes no difference to the result.
type gate struct {
	Constraint
	passed  bool // the candidates are allowed, all of them
	asked   []int32
	allowed []int32
	all     []int32 // every token
	first   []Candidate
}

// admit makes sure that a step sees allowed candidates only, as far as what it
// does depends on them. It reports whether the step is to be left out.
func (c *Candidates) admit(step Step, history []int32) (skip bool) {
	switch f := step.(type) {
	case logitBias, noRepeatNGram, penalties, dry:
		// Each changes a token by itself, whatever the others are.
	case minLength:
		if len(history)-f.prompt < f.n {
			c.admitAll()
			// A text that can only end is long enough.
			return c.err == nil && c.listed && !slices.ContainsFunc(c.list, func(x Candidate) bool { return !slices.Contains(f.ends, x.ID) })
		}
	case topK:
		c.admitTop(f.k)
	case minP:
		c.admitTop(max(1, f.least))
		if c.err == nil && c.gate.passed {
			c.admitAbove(float64(c.Max())+c.temp*math.Log(f.p), f.least)
		}
	case temperature:
		if f.greedy() {
			c.admitTop(1)
		}
	default:
		c.admitAll()
	}
	return false
}

// ask returns those of the tokens that are allowed. It is valid until it is
// called again.
func (c *Candidates) ask(tokens []int32) []int32 {
	g := &c.gate
	var err error
	if g.allowed, err = g.Allow(g.allowed[:0], tokens); err != nil {
		c.fail(fmt.Errorf("sampler: constraint: %w", err))
		return nil
	}
	return g.allowed
}

// admitAll removes all candidates that are not allowed.
func (c *Candidates) admitAll() {
	g := &c.gate
	if g.passed {
		return
	}
	if c.Max(); c.err != nil { // a NaN anywhere in the row is an error
		return
	}
	for id := int32(len(g.all)); int(id) < len(c.row); id++ {
		g.all = append(g.all, id)
	}
	allowed := c.ask(g.all[:len(c.row)])
	if c.err != nil {
		return
	}
	g.passed = true
	if len(allowed) > len(c.row)/2 {
		c.banOthers(allowed)
		return
	}
	c.listed, c.sorted, c.list = true, false, c.list[:0]
	for _, id := range allowed {
		if v := c.row[id]; v != negInf {
			c.list = append(c.list, Candidate{id, v})
		}
	}
	if len(c.list) == 0 {
		c.noneAllowed()
	}
}

// banOthers bans the tokens of the row that are not among the allowed ones,
// which are in the order of the row.
func (c *Candidates) banOthers(allowed []int32) {
	c.patcher = constraintName
	id := int32(0)
	for _, next := range append(allowed, int32(len(c.row))) {
		for ; id < next; id++ {
			if v := c.row[id]; v != negInf {
				c.undo = append(c.undo, Candidate{id, v})
				c.row[id] = negInf
			}
		}
		id++
	}
}

// constraintName is what a constraint is called in errors.
const constraintName = "the constraint"

func (c *Candidates) noneAllowed() {
	c.fail(fmt.Errorf("sampler: %w after %s", ErrNoCandidates, constraintName))
}

// admitTop makes the list from the k best of the allowed tokens. It asks for
// the best of the row, more and more of them until k are allowed.
func (c *Candidates) admitTop(k int) {
	g := &c.gate
	for n := 2*k + 8; n < len(c.row)/8; n *= 8 {
		c.KeepTop(n)
		c.Sort()
		if c.err != nil {
			return
		}
		whole := len(c.list) < n // all others are banned
		if c.keepAllowed() >= k || whole {
			break
		}
		if c.err != nil {
			return
		}
		c.listed, g.passed = false, false // the row still has them all
	}
	switch {
	case c.err != nil:
	case !g.passed:
		c.admitAll()
		c.KeepTop(k)
	case len(c.list) == 0:
		c.noneAllowed()
	default:
		c.KeepTop(k)
	}
}

// admitAbove makes the list from the allowed tokens whose logit is at least the
// bound, and from the first least of them in any case, which the list already
// has.
func (c *Candidates) admitAbove(bound float64, least int) {
	g := &c.gate
	g.first = append(g.first[:0], c.list...)
	c.listAbove(bound)
	if c.err == nil {
		c.keepAllowed()
	}
	if len(c.list) < least && c.err == nil {
		c.list = append(c.list[:0], g.first...)
	}
	c.sorted = false
}

// keepAllowed removes from the list what is not allowed, and returns how many
// are left.
func (c *Candidates) keepAllowed() int {
	g := &c.gate
	g.asked = g.asked[:0]
	for _, x := range c.list {
		g.asked = append(g.asked, x.ID)
	}
	allowed := c.ask(g.asked)
	if c.err != nil {
		return 0
	}
	n := 0
	for _, x := range c.list {
		if n < len(allowed) && x.ID == allowed[n] {
			c.list[n] = x
			n++
		}
	}
	c.list, g.passed = c.list[:n], true
	return n
}

// drawAllowed is drawRow among the allowed tokens. The winner among all is the
// winner among those that are allowed if it is one of them; else it is out of
// the race.
func (c *Candidates) drawAllowed(k key) int32 {
	for range 8 {
		id := c.drawRow(k)
		if c.err != nil {
			return 0
		}
		c.gate.asked = append(c.gate.asked[:0], id)
		if ok := len(c.ask(c.gate.asked)) > 0; ok || c.err != nil {
			return id
		}
		c.undo = append(c.undo, Candidate{id, c.row[id]})
		c.row[id], c.patcher = negInf, constraintName
	}
	c.admitAll()
	switch {
	case c.err != nil:
		return 0
	case c.listed:
		return c.drawList(k)
	}
	return c.drawRow(k)
}
