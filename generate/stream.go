package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// Stream returns the tokens of one text, as they are generated. It returns a
// single-use iterator, and panics when it is ranged over a second time. The
// request is queued when the loop over the stream begins; requests get a
// sequence in the order in which they came.
//
// An error comes last, after all tokens generated before it, and with a zero
// Token. The end of the text is no error: Request.Stats has the reason. A done
// ctx ends the text at once, with an error that wraps context.Cause(ctx).
// Leaving the loop ends it as well. Either interrupts an evaluation that no
// other request shares. A panic in a filter of the request's own
// (sampler.Config.Steps) is raised again here.
//
// The engine does not wait for the loop: generated tokens are kept for it. A
// slow reader thus delays no other request, nor the end of its own, and the
// engine may have generated more than was read when the loop is left.
func (e *Engine) Stream(ctx context.Context, request Request) iter.Seq2[Token, error] {
	used := false
	return func(yield func(Token, error) bool) {
		if used {
			panic("generate: a stream is ranged over a second time")
		}
		used = true

		r, err := e.start(ctx, request)
		if err != nil {
			if request.Stats != nil {
				*request.Stats = Stats{Seed: request.Seed, Prompt: len(request.Prompt), Finish: Failed}
				if ctx.Err() != nil {
					request.Stats.Finish = Cancelled
				}
			}
			yield(Token{}, err)
			return
		}
		unhook := context.AfterFunc(ctx, func() {
			e.finish(r, Cancelled, fmt.Errorf("generate: %w", context.Cause(ctx)))
		})
		// Also when the body of the loop panics.
		defer func() {
			unhook()
			e.finish(r, Cancelled, errLeft)
			if request.Stats != nil {
				*request.Stats = r.stats
			}
		}()
		var tokens []Token
		for more := true; more; {
			tokens, more = e.take(r, tokens)
			for _, t := range tokens {
				if !yield(t, nil) {
					return
				}
			}
		}
		if p, ok := r.err.(userPanic); ok {
			panic(p.value)
		}
		if r.err != nil {
			if request.Stats != nil {
				*request.Stats = r.stats
			}
			yield(Token{}, r.err)
		}
	}
}

// errLeft ends a run whose stream is not read any more; nobody sees it.
var errLeft = errors.New("generate: the loop over the stream was left")

// A run is a request under way.
type run struct {
	Request
	sampler *sampler.Sampler

	// The loop's own, once submitted.
	ticket    uint64        // runs are served in this order
	tokens    []int32       // the prompt and what was generated
	sequences []*sequence   // see beginnings; none while queued
	left      []beginning   // what sequences had that were taken from it
	round     bool          // the step brings it new tokens
	dist      sampler.Dist  // what the last token was drawn from, for PostSampling
	trace     sampler.Trace // how it was chosen, for Trace
	history   []int32       // scratch

	drafting bool // the round was planned with Options.Drafts
	draft    speculative.Draft
	places   []speculative.Place // scratch, as is path
	path     []int32
	report   speculative.Round

	// Guarded by Engine.mu. The loop writes none of it once ended is set.
	ready  *sync.Cond // out has tokens, or the run has ended
	out    []Token    // settled and not taken
	text   text
	inEval bool // one of Engine.shared
	ended  bool
	err    error
	stats  Stats
	times  times
}

// start checks a request and queues it.
func (e *Engine) start(ctx context.Context, request Request) (*run, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("generate: %w", context.Cause(ctx))
	}
	if err := request.check(e.target.limits, len(e.options.Amateurs)); err != nil {
		return nil, err
	}
	if request.ContextShift {
		if err := e.checkShift(); err != nil {
			return nil, err
		}
	}
	s, err := sampler.New(e.sampling(request))
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	r := &run{
		Request: request,
		sampler: s,
		tokens:  append([]int32(nil), request.Prompt...),
		ready:   sync.NewCond(&e.mu),
		text:    newText(request.Stop),
		stats:   Stats{Seed: request.Seed, Prompt: len(request.Prompt)},
		times:   times{asked: time.Now()},
	}
	if r.Trace != nil {
		r.trace.Top = r.TraceTop
		s.Trace(&r.trace)
	}
	return r, e.submit(r)
}

// sampling is the configuration of a request's sampler, with what only the
// request and the vocabulary know.
func (e *Engine) sampling(r Request) sampler.Config {
	c := r.Sampling
	if c.PromptLen == 0 {
		c.PromptLen = len(r.Prompt)
	}
	if c.MinLength > 0 && len(c.EndTokens) == 0 {
		c.EndTokens = slices.Clone(r.EndTokens)
		if !r.IgnoreEOG {
			c.EndTokens = append(c.EndTokens, e.ends()...)
		}
		if len(c.EndTokens) == 0 {
			c.MinLength = 0
		}
	}
	return c
}

// take waits for tokens, and reports whether more may follow them. The slice
// that it returned before is used again.
func (e *Engine) take(r *run, used []Token) (tokens []Token, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(r.out) == 0 && !r.ended {
		r.ready.Wait()
	}
	tokens, r.out = r.out, used[:0]
	return tokens, !r.ended
}
