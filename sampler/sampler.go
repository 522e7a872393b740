package sampler

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Errors of a row of logits. They are wrapped with the token or the filter
// concerned.
var (
	// ErrNaN: a logit is not a number.
	ErrNaN = errors.New("logit is NaN")
	// ErrInf: a logit is +Inf.
	ErrInf = errors.New("logit is +Inf")
	// ErrNoCandidates: every token is banned.
	ErrNoCandidates = errors.New("no token left to draw from")
)

// A Sampler turns rows of logits into tokens. It is made by [New]. With
// mirostat, adaptive-p, a [Constraint] or a [Stateful] step of the user's it
// belongs to one sequence and hears of its tokens by [Sampler.Accept]; else it
// remembers nothing. One goroutine at a time may use it.
type Sampler struct {
	chain  []namedStep
	method DrawMethod
	trace  *Trace // nil for none
	c      Candidates

	refused error // what the constraint had to say about a token
}

// New returns a sampler for a configuration. A value out of range is an error
// that names it, as is a filter that is set but missing from the order. The
// user's own steps are shared with other samplers of the configuration unless
// they are [Stateful]: then the sampler has clones of them.
func New(c Config) (*Sampler, error) {
	chain, err := compile(&c)
	if err != nil {
		return nil, err
	}
	s := &Sampler{chain: chain, method: c.DrawMethod}
	s.c.promptLen = c.PromptLen
	if s.c.gate.Constraint, err = cloneConstraint(c.Constraint); err != nil {
		return nil, err
	}
	if s.method == DrawMT19937 {
		s.c.twisters = new([2]mt19937)
	}
	return s, nil
}

// Clone returns a sampler with the same settings, the same state of steps that
// have one, and scratch memory of its own: for another goroutine, or to go on
// from here in more than one way. The user's own steps are shared unless they
// are [Stateful].
func (s *Sampler) Clone() *Sampler {
	n := &Sampler{chain: cloneChain(s.chain), method: s.method, refused: s.refused}
	n.c.promptLen = s.c.promptLen
	n.c.gate.Constraint, _ = cloneConstraint(s.c.gate.Constraint) // it could be cloned before
	if s.c.twisters != nil {
		n.c.twisters = new([2]mt19937)
	}
	return n
}

// String lists the filters that are on, first to last, with their settings.
func (s *Sampler) String() string {
	var b strings.Builder
	if s.c.gate.Constraint != nil {
		b.WriteString("constraint -> ")
	}
	for _, step := range s.chain {
		b.WriteString(step.name)
		if v, ok := step.Step.(fmt.Stringer); ok {
			fmt.Fprintf(&b, "(%v)", v)
		}
		b.WriteString(" -> ")
	}
	b.WriteString("draw")
	switch s.method {
	case DrawInverse:
		b.WriteString("(inverse)")
	case DrawMT19937:
		b.WriteString("(mt19937)")
	}
	return b.String()
}

// Pick draws a token from a row of logits, which are indexed by token. The
// history holds the tokens so far, prompt included. With the default method
// the token is the one that [Dist.Draw] gives for the distribution of the same
// row.
//
// The logits may be changed during the call; on return, with or without an
// error, they are as before. NaN among them is [ErrNaN], +Inf is [ErrInf],
// nothing left to draw from is [ErrNoCandidates].
func (s *Sampler) Pick(logits []float32, history []int32, at Draw) (int32, error) {
	defer s.c.close()
	return s.pick(logits, history, at)
}

// PickDist is [Sampler.Pick] that also makes dst the distribution which the
// token was drawn from, with one run of the chain: that of [Sampler.DistAt].
// After an error dst is empty.
func (s *Sampler) PickDist(dst *Dist, logits []float32, history []int32, at Draw) (int32, error) {
	dst.reset()
	c := &s.c
	defer c.close()
	id, err := s.pick(logits, history, at)
	if err != nil {
		return 0, err
	}
	if c.admitAll(); c.err != nil {
		return 0, c.err
	}
	c.settle()
	c.expand()
	dst.fill(c)
	return id, nil
}

func (s *Sampler) pick(logits []float32, history []int32, at Draw) (int32, error) {
	c := &s.c
	c.at, c.placed = at, true
	if err := s.run(logits, history, s.trace); err != nil {
		return 0, err
	}
	var id int32
	isRow := !c.listed
	switch {
	case s.method != DrawGumbel:
		if c.admitAll(); c.err != nil {
			return 0, c.err
		}
		c.settle()
		isRow = !c.listed
		id = c.drawInverse(c.uniform())
		if isRow && c.err == nil {
			c.listed = false // the draw has listed a part of it
		}
	case !c.gate.passed:
		id = c.drawAllowed(at.key())
	case isRow:
		id = c.drawRow(at.key())
	default:
		id = c.drawList(at.key())
	}
	if c.err == nil && s.trace != nil {
		s.trace.end(c, id, s.method)
	}
	return id, c.err
}

// Dist makes dst the distribution over the tokens that survive the chain. What
// dst held is overwritten and its memory is used again. Logits, history and
// errors are those of [Sampler.Pick]; after an error dst is empty. A chain with
// xtc has no distribution apart from a draw: that is an error, and
// [Sampler.DistAt] is the way.
func (s *Sampler) Dist(dst *Dist, logits []float32, history []int32) error {
	s.c.at, s.c.placed = Draw{}, false
	return s.dist(dst, logits, history)
}

// DistAt is like [Sampler.Dist] for one draw, whose seed and position decide
// whether xtc acts.
func (s *Sampler) DistAt(dst *Dist, logits []float32, history []int32, at Draw) error {
	s.c.at, s.c.placed = at, true
	return s.dist(dst, logits, history)
}

func (s *Sampler) dist(dst *Dist, logits []float32, history []int32) error {
	dst.reset()
	c := &s.c
	defer c.close()
	if err := s.run(logits, history, nil); err != nil {
		return err
	}
	c.admitAll()
	c.settle()
	c.expand()
	if c.err != nil {
		return c.err
	}
	dst.fill(c)
	return nil
}

// run applies the chain to a row. On success there is something to draw from,
// unless the row has not been looked at yet. A trace, where not nil, is told of
// each step.
func (s *Sampler) run(logits []float32, history []int32, t *Trace) error {
	c := &s.c
	c.open(logits)
	if s.refused != nil {
		return fmt.Errorf("sampler: %s: %w", constraintName, s.refused)
	}
	if c.twisters != nil && c.placed && c.at.Pos < c.promptLen {
		return fmt.Errorf("sampler: position %d lies in the prompt of %d tokens", c.at.Pos, c.promptLen)
	}
	if t != nil {
		t.begin(c)
		if !c.gate.passed { // at once, so that the steps show what is allowed
			if c.admitAll(); c.err != nil {
				return c.err
			}
			t.step(constraintName, c)
		}
	}
	for _, step := range s.chain {
		if !c.gate.passed {
			skip := c.admit(step.Step, history)
			if c.err != nil {
				return c.err
			}
			if skip {
				continue
			}
		}
		if t, scales := step.Step.(temperature); !scales || t.greedy() {
			c.settle()
		}
		patched := len(c.undo)
		if err := step.Apply(c, history); err != nil {
			return fmt.Errorf("sampler: %s: %w", step.name, err)
		}
		if step.own {
			c.check()
		}
		if c.err == nil && c.listed && len(c.list) == 0 {
			c.err = fmt.Errorf("sampler: %w after %s", ErrNoCandidates, step.name)
		}
		if c.err != nil {
			return c.err
		}
		if len(c.undo) > patched {
			c.patcher = step.name
		}
		if t != nil {
			c.settle() // so that the trace can count it
			t.step(step.name, c)
		}
	}
	return nil
}

// logitError describes a logit that can not be used.
func logitError(token int, logit float32) error {
	err := ErrInf
	if logit != logit {
		err = ErrNaN
	}
	return fmt.Errorf("sampler: token %d: %w", token, err)
}

var negInf = float32(math.Inf(-1))
