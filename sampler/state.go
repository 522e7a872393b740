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

// Accept tells the steps that have a state, such as mirostat, which token
// follows the history of the last call. A sampler whose steps have none does
// not need it.
func (s *Sampler) Accept(token int32) {
	for _, step := range s.chain {
		if v, ok := step.Step.(Stateful); ok {
			v.Accept(token)
		}
	}
}

// Stateful reports whether a step has a state, which Accept moves. Where none
// has, one sampler serves for any point of a text.
func (s *Sampler) Stateful() bool {
	return slices.ContainsFunc(s.chain, func(step namedStep) bool {
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
// follows.
type offered struct {
	ids   []int32
	probs []float64
}

// hold keeps the distribution of the candidates, which are a list.
func (o *offered) hold(c *Candidates) {
	o.ids, o.probs = o.ids[:0], append(o.probs[:0], c.Probs()...)
	for _, x := range c.list {
		o.ids = append(o.ids, x.ID)
	}
}

// take returns the probability of a token, 0 if it was not offered, and
// forgets the distribution.
func (o *offered) take(token int32) float64 {
	p := 0.0
	if i := slices.Index(o.ids, token); i >= 0 {
		p = o.probs[i]
	}
	o.ids = o.ids[:0]
	return p
}

func (o *offered) clone() offered { return offered{slices.Clone(o.ids), slices.Clone(o.probs)} }
