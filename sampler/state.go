package sampler

import "slices"

// A Stateful step adapts to the tokens of its sequence.
type Stateful interface {
	Step

	// Accept tells the step which token follows. It may be one that the step
	// has not seen as a candidate; it must then stay usable.
	Accept(token int32)

	// Clone returns a step in the same state that goes its own way.
	Clone() Stateful
}

// Accept tells the constraint and the steps that have a state, such as
// mirostat, which token follows the history of the last call. A sampler that
// has neither does not need it. A token that the constraint does not allow is
// an error of the next call.
func (s *Sampler) Accept(token int32) {
	if c := s.c.gate.Constraint; c != nil && s.refused == nil {
		s.refused = c.Accept(token)
	}
	for _, step := range s.chain {
		if v, ok := step.Step.(Stateful); ok {
			v.Accept(token)
		}
	}
}

// Stateful reports whether there is a constraint, or a step with a state, which
// Accept moves. Where there is none, one sampler serves for any point of a text.
func (s *Sampler) Stateful() bool {
	return s.c.gate.Constraint != nil || slices.ContainsFunc(s.chain, func(step namedStep) bool {
		_, ok := step.Step.(Stateful)
		return ok
	})
}

// cloneChain copies a chain with the state of its steps.
func cloneChain(chain []namedStep) []namedStep {
	chain = slices.Clone(chain)
	for i, step := range chain {
		if v, ok := step.Step.(Stateful); ok {
			chain[i].Step = v.Clone()
		}
	}
	return chain
}

// offered is what a step offers to the draw, until it hears which token
// follows: a list with its probabilities, or a row.
type offered struct {
	ids   []int32
	probs []float64

	row   []float32 // a copy
	floor float32   // what is not above it is not offered
	top   float32   // the highest logit
	inv   float64   // 1 over the temperature
	mass  float64   // sum of exp((logit-top)*inv) above the floor
}

// hold keeps the distribution of the candidates.
func (o *offered) hold(c *Candidates) {
	o.ids, o.row = o.ids[:0], slices.Grow(o.row[:0], len(c.row))
	if !c.listed {
		o.row = append(o.row, c.row...)
		o.floor, o.top, o.inv = negInf, c.Max(), 1/c.temp
		if c.cut {
			o.floor = c.floor
		}
		o.mass, _ = expSum(o.row, o.top, o.inv, o.floor)
		return
	}
	o.ids, o.probs = slices.Grow(o.ids, cap(c.list)), slices.Grow(o.probs[:0], cap(c.list))
	o.probs = append(o.probs, c.Probs()...)
	for _, x := range c.list {
		o.ids = append(o.ids, x.ID)
	}
}

// probOf returns the probability of a logit of the row.
func (o *offered) probOf(logit float32) float64 {
	if logit <= o.floor {
		return 0
	}
	return expOf((float64(logit)-float64(o.top))*o.inv) / o.mass
}

// take returns the probability of a token, 0 if it was not offered, and
// forgets the distribution.
func (o *offered) take(token int32) float64 {
	p := 0.0
	if uint(token) < uint(len(o.row)) {
		p = o.probOf(o.row[token])
	} else if i := slices.Index(o.ids, token); i >= 0 {
		p = o.probs[i]
	}
	o.ids, o.row = o.ids[:0], o.row[:0]
	return p
}

// clone returns a copy that shares no memory.
func (o offered) clone() offered {
	o.ids, o.probs, o.row = slices.Clone(o.ids), slices.Clone(o.probs), slices.Clone(o.row)
	return o
}
