package generate

import "fmt"

// A shifter is an evaluator whose sequences can forget tokens in their middle.
type shifter interface {
	// Shift drops the tokens from, from+1, ... to-1 of a sequence and moves
	// those behind them down.
	Shift(seq, from, to int) error
}

// checkShift reports what is wrong with a request for a context shift.
func (e *Engine) checkShift() error {
	for _, m := range e.models {
		if _, ok := m.Evaluator.(shifter); !ok {
			return fmt.Errorf("generate: a context shift needs an evaluator that can drop tokens from the middle of a sequence")
		}
		if c, ok := m.Evaluator.(interface{ CanShift() bool }); ok && !c.CanShift() {
			return fmt.Errorf("generate: a context shift is not possible: the memory of this model cannot drop tokens from the middle of a sequence")
		}
	}
	return nil
}

// shift makes room in those sequences of a run that are full, and returns how
// the text ends where that is not possible.
func (e *Engine) shift(r *run) ending {
	for _, s := range r.sequences {
		m := s.model
		if len(s.text) <= m.limits.Context {
			continue
		}
		// One token is not evaluated yet: at least one of the others must go.
		keep := min(r.Keep, s.fed-1)
		drop := max(1, (s.fed-keep)/2)
		if err := m.Evaluator.(shifter).Shift(s.id, keep, keep+drop); err != nil {
			return ending{Failed, fmt.Errorf("generate: context shift: %w", err)}
		}
		s.text = append(s.text[:keep], s.text[keep+drop:]...)
		s.fed -= drop
		s.sound = min(s.sound, keep)
		e.log.Debug("context shift", "sequence", s.id, "kept", keep, "forgotten", drop)
	}
	return ending{}
}
