package generate

import (
	"fmt"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/sampler"
)

// Guidance asks for classifier-free guidance: see [sampler.Guide].
type Guidance struct {
	// Scale is how far the text is led away from what would follow
	// NegativePrompt: 1 not at all. Finite, 0 or more.
	Scale float64
	// NegativePrompt stands in place of the prompt in a second sequence of the
	// target, which a request with guidance needs. What is generated follows
	// both. At least one token.
	NegativePrompt []int32
}

// check reports what is wrong with guidance for a target of these limits.
func (g *Guidance) check(l eval.Limits) error {
	switch {
	case !(g.Scale >= 0 && g.Scale <= maxScale):
		return fmt.Errorf("generate: the scale of guidance is %v: it must be in [0, %g]", g.Scale, float64(maxScale))
	case l.Sequences < 2:
		return fmt.Errorf("generate: guidance needs two sequences, and the evaluator has %d", l.Sequences)
	case len(g.NegativePrompt) == 0:
		return fmt.Errorf("generate: the negative prompt is empty: it needs at least one token")
	case len(g.NegativePrompt) > l.Context:
		return fmt.Errorf("generate: negative prompt: %w: %d tokens in a context of %d", ErrPromptTooLong, len(g.NegativePrompt), l.Context)
	}
	return checkTokens("token %d of the negative prompt", g.NegativePrompt, l)
}

// maxScale keeps products of logits finite.
const maxScale = 1e6

// beginnings returns the texts that the sequences of a run begin with, by model:
// the target's, that of the negative prompt, those of the amateurs.
func (e *Engine) beginnings(r *run) []beginning {
	if r.left != nil {
		return r.left
	}
	b := []beginning{{e.target, r.tokens}}
	if r.Guidance != nil {
		generated := r.tokens[len(r.Prompt):]
		b = append(b, beginning{e.target, append(append([]int32(nil), r.Guidance.NegativePrompt...), generated...)})
	}
	if r.Contrast != nil {
		for _, m := range e.models[1:] {
			b = append(b, beginning{m, r.tokens})
		}
	}
	return b
}

type beginning struct {
	model *model
	text  []int32
}

// logits returns the row that a run's token behind i drafts is chosen from: the
// target's, guided, and contrasted with the amateurs' raw rows. It may be
// written to. What it returned before is overwritten.
func (e *Engine) logits(r *run, i int) []float32 {
	row := func(s *sequence) []float32 { return s.model.Logits(s.output(i)) }
	logits, others := row(r.sequences[0]), r.sequences[1:]
	if len(others) > 0 && e.combined == nil {
		e.combined = make([]float32, len(logits))
	}
	if r.Guidance != nil {
		sampler.Guide(e.combined, logits, row(others[0]), r.Guidance.Scale)
		logits, others = e.combined, others[1:]
	}
	if r.Contrast != nil {
		amateurs := make([][]float32, len(others))
		for j, s := range others {
			amateurs[j] = row(s)
		}
		r.Contrast.Logits(e.combined, logits, amateurs...)
		logits = e.combined
	}
	return logits
}
