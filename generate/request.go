package generate

import (
	"fmt"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/sampler"
)

// A Request asks for one text. Only Prompt must be set: without anything else
// the most probable token is taken at each step until the vocabulary's end
// token or the end of the context.
type Request struct {
	// Prompt is the start of the sequence, at least one token, each in
	// [0, Limits().Vocab), at most Limits().Context of them. It is read when
	// the stream is ranged over, and not kept.
	Prompt []int32

	// MaxTokens bounds the tokens generated. 0 is no bound: the text ends at
	// an end token, a stop string or the end of the context.
	MaxTokens int

	// ContextShift goes on where the context is full: of a sequence's text the
	// first Keep tokens stay, half of those behind them are forgotten, and the
	// rest moves down (llama.cpp's context shift). What follows is an
	// approximation: the keys and values of the tokens that stay were computed
	// with those before them that are gone. Filters that look back still see the
	// whole text. It needs an evaluator with a method Shift(seq, from, to int)
	// error that drops tokens from the middle of a sequence.
	ContextShift bool
	Keep         int

	// PromptOnly evaluates the prompt, so that a later request that starts
	// with it finds it in the cache, and generates nothing.
	PromptOnly bool

	// Sampling says how a token is chosen, Seed which draw it is. The token
	// at position n, with n tokens before it, is a function of the logits,
	// those n tokens, Sampling, Seed and n. With mirostat, adaptive-p or a step
	// of the caller's that has a state it follows from the logits before all
	// tokens of the text; every request has a state of its own.
	//
	// Where Sampling.PromptLen is 0 it becomes the length of Prompt. Where
	// Sampling.MinLength is set and its EndTokens are empty, these become the
	// tokens that end this text: EndTokens, and those of the vocabulary unless
	// IgnoreEOG is set. If there are none, MinLength bans nothing.
	//
	// A constraint decides where the text may end: with Sampling.Constraint
	// neither EndTokens nor IgnoreEOG may be set. It is cloned for the request,
	// and hears of every token of the text and of its end token.
	Sampling sampler.Config
	Seed     uint64

	// Contrast, where not nil, takes the logits of all Options.Amateurs, of
	// which there must be one, from the target's: contrastive decoding. The
	// amateurs read the same text, and their logits are used as they are.
	Contrast *sampler.Contrast

	// Guidance, where not nil, leads away from what would follow another
	// prompt: classifier-free guidance. Contrast applies to what it gives.
	Guidance *Guidance

	// NoDrafts generates without Options.Drafts.
	NoDrafts bool

	// Stop ends the text before the first of these strings that is complete
	// (of several that are complete at the same byte, before the longest).
	// They are compared with the bytes of the tokens; none may be empty. No
	// byte of the stop string is part of the text, nor any after it.
	Stop []string

	// EndTokens end the text besides those of the vocabulary. An end token
	// is not part of the text, and is not yielded.
	EndTokens []int32
	// IgnoreEOG generates on through the end tokens of the vocabulary.
	IgnoreEOG bool

	// LogProbs asks for Token.LogProb, TopLogProbs for so many entries in
	// Token.Top; TopLogProbs above 0 implies LogProbs.
	LogProbs    bool
	TopLogProbs int
	// PostSampling asks for the log-probabilities behind the filters as well:
	// Token.PostSamplingLogProb, and TopLogProbs entries in
	// Token.PostSamplingTop.
	PostSampling bool

	// Trace, where not nil, is told how each token was chosen, an end token
	// included, with TraceTop candidates listed for every step. It is called on
	// the goroutine of the engine, which waits for it, and must not keep its
	// argument. The text is the same with and without it.
	Trace    func(*sampler.Trace)
	TraceTop int

	// Stats, where not nil, is filled when the text has ended: before the
	// stream yields its error, and before the loop over it is left. It is
	// written on the goroutine that ranges over the stream.
	Stats *Stats
}

// check reports what is wrong with a request for a target of these limits and so
// many amateurs.
func (r Request) check(l eval.Limits, amateurs int) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("generate: the prompt is empty: it needs at least one token")
	case len(r.Prompt) > l.Context:
		return fmt.Errorf("generate: %w: %d tokens in a context of %d", ErrPromptTooLong, len(r.Prompt), l.Context)
	case r.MaxTokens < 0:
		return fmt.Errorf("generate: MaxTokens is %d: it must be at least 0 (no bound)", r.MaxTokens)
	case r.Sampling.Constraint != nil && len(r.EndTokens) > 0:
		return fmt.Errorf("generate: EndTokens with a constraint: it must be empty, for the constraint says where the text may end")
	case r.Sampling.Constraint != nil && r.IgnoreEOG:
		return fmt.Errorf("generate: IgnoreEOG with a constraint: it must be false, for the constraint says where the text may end")
	case r.Keep < 0:
		return fmt.Errorf("generate: Keep is %d: it must be at least 0", r.Keep)
	case r.TopLogProbs < 0 || r.TopLogProbs > l.Vocab:
		return fmt.Errorf("generate: TopLogProbs is %d: it must be in [0, %d]", r.TopLogProbs, l.Vocab)
	case r.TraceTop < 0 || r.TraceTop > l.Vocab:
		return fmt.Errorf("generate: TraceTop is %d: it must be in [0, %d]", r.TraceTop, l.Vocab)
	}
	if r.Contrast != nil {
		if amateurs == 0 {
			return fmt.Errorf("generate: contrast needs a model in Options.Amateurs, and there is none")
		}
		if err := r.Contrast.Check(); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	if r.Guidance != nil {
		if err := r.Guidance.check(l); err != nil {
			return err
		}
	}
	if err := checkTokens("prompt token %d", r.Prompt, l); err != nil {
		return err
	}
	if err := checkTokens("end token %d", r.EndTokens, l); err != nil {
		return err
	}
	for i, s := range r.Stop {
		if s == "" {
			return fmt.Errorf("generate: stop string %d is empty", i)
		}
	}
	return nil
}

// checkTokens reports the first token outside the vocabulary. what names one by
// its index.
func checkTokens(what string, tokens []int32, l eval.Limits) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= l.Vocab {
			return fmt.Errorf("generate: "+what+" is %d: %w of %d", i, t, eval.ErrToken, l.Vocab)
		}
	}
	return nil
}
