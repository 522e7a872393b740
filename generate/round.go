package generate

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sortes-llm/sortes/sampler"
)

// advance takes what the batches have brought a run: pieces of its prompt, or a
// round. In a round the text grows by the drafts that the rule lets stand and
// the token that follows them. What the others left behind is dropped.
func (e *Engine) advance(r *run) {
	if !r.inBatch() {
		return
	}
	start := len(r.tokens)
	if start == len(r.Prompt) {
		e.countPrompt(r, r.target().tokens)
	}
	for _, s := range r.sequences {
		s.fed += s.tokens
	}
	if !r.round {
		return
	}
	if r.PromptOnly {
		e.finish(r, MaxTokens, nil)
		return
	}
	e.readDrafts(r)
	began := time.Now()
	outcome := e.grow(r)
	if e.learns && r.drafting {
		e.learn(r, start)
	}
	chosen := time.Now()

	stood, place := r.draft.Follow(r.tokens[start:])
	for _, s := range r.sequences {
		s.fed += stood
		if stood == len(s.drafts) {
			continue
		}
		branch := 0
		if place > 0 && s.places != nil {
			branch = s.places[place-1].First
		}
		kept, err := s.keep(branch, s.fed)
		if kept < s.fed {
			e.giveUpDrafts(s)
		}
		if s.fed = kept; err != nil && outcome.reason == "" {
			outcome = ending{Failed, err}
		}
	}
	if r.drafting {
		e.observe(r, stood, chosen.Sub(began), time.Since(chosen))
	}
	if outcome.reason == "" && r.ContextShift {
		outcome = e.shift(r)
	}
	if outcome.reason != "" {
		e.finish(r, outcome.reason, outcome.err)
	}
}

// learn hands the target's rows to drafters that learn from them: those behind
// the text and behind each draft, whether it stood or not.
func (e *Engine) learn(r *run, start int) {
	for i := range len(r.draft.Tokens) + 1 {
		r.history = r.draft.AppendPath(append(r.history[:0], r.tokens[:start]...), i)
		e.options.Drafts.Learn(r.target().id, r.history, e.target.Logits(r.target().output(i)))
	}
}

// An ending says how a text ended. The zero value says that it has not, or that
// it was for others to say.
type ending struct {
	reason FinishReason
	err    error
}

// observe reports a round to the controller of the drafts and counts it.
func (e *Engine) observe(r *run, stood int, sampling, rest time.Duration) {
	own := 0
	for _, s := range r.sequences {
		if s.model == e.target {
			own += s.rows()
		}
	}
	report := &r.report
	report.Accepted = stood
	report.Verify = e.took * time.Duration(own) / time.Duration(len(e.target.rows))
	report.Sampling, report.Rest = sampling, rest
	done := e.options.Drafts.Controller().Observe(*report)

	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.ended {
		r.stats.Drafts.Count(done)
	}
}

// grow adds the tokens of a round to a run's text.
func (e *Engine) grow(r *run) (end ending) {
	// A panic in the user's code (a filter, the vocabulary, a trace) ends the
	// run; its stream raises it again.
	defer func() {
		if p := recover(); p != nil {
			end = ending{Failed, e.panicked(p)}
		}
	}()
	c := choice{engine: e, run: r, start: len(r.tokens)}
	place, next, err := e.verifier.Verify(e.options.Rule, &c, r.draft, r.at())
	stand := c.stand(place)
	switch {
	case c.ended:
	case err != nil:
		c.fail(err)
	case c.done() == stand:
		c.take(next)
	}
	return c.ending
}

// errEnded tells the verifier that the text has ended.
var errEnded = errors.New("generate: the text has ended")

// A userPanic is the error of a run whose user's code panicked.
type userPanic struct{ value any }

func (p userPanic) Error() string { return fmt.Sprintf("generate: panic: %v", p.value) }

// panicked logs a panic in the user's code.
func (e *Engine) panicked(p any) userPanic {
	e.log.Error("choosing a token panicked", "panic", p, "stack", string(debug.Stack()))
	return userPanic{p}
}

// A choice is the round of a run as the verifier sees it: a
// [speculative.Target].
type choice struct {
	engine *Engine
	run    *run
	start  int // length of the text before
	// ahead is a sampler in the state after some drafts, for Dist.
	ahead *sampler.Sampler
	told  []int32 // the drafts that it has heard of

	ended  bool
	ending ending
}

// done returns how many tokens the round has added to the text.
func (c *choice) done() int { return len(c.run.tokens) - c.start }

// place returns where in the draft the text is.
func (c *choice) place() int {
	_, place := c.run.draft.Follow(c.run.tokens[c.start:])
	return place
}

// stand adds the drafts up to a place to the text, as far as it does not have
// them and goes on, and returns how many they are.
func (c *choice) stand(place int) int {
	r := c.run
	r.path = r.draft.AppendPath(r.path[:0], place)
	for j := c.done(); j < len(r.path) && !c.ended; j++ {
		c.take(r.path[j])
	}
	return len(r.path)
}

// Pick draws the token at place i of the draft, up to which it stands with
// that, and adds it to the text.
func (c *choice) Pick(i int) (int32, error) {
	r := c.run
	if c.stand(i); c.ended {
		return 0, errEnded
	}
	logits := c.engine.logits(r, i)
	var id int32
	var err error
	if r.PostSampling {
		id, err = r.sampler.PickDist(&r.dist, logits, r.tokens, r.at())
	} else {
		id, err = r.sampler.Pick(logits, r.tokens, r.at())
	}
	if err != nil {
		return 0, err
	}
	if c.add(id); c.ended {
		return 0, errEnded
	}
	return id, nil
}

// Dist returns the distribution at place i of the draft.
func (c *choice) Dist(dst *sampler.Dist, i int) error {
	r := c.run
	s := r.sampler
	r.history = r.draft.AppendPath(append(r.history[:0], r.tokens...), i)
	if path := r.history[len(r.tokens):]; len(path) > 0 && s.Stateful() {
		if told := len(c.told); c.ahead == nil || told > len(path) || !slices.Equal(c.told, path[:told]) {
			c.ahead, c.told = s.Clone(), c.told[:0]
		}
		for _, x := range path[len(c.told):] {
			c.ahead.Accept(x)
			c.told = append(c.told, x)
		}
		s = c.ahead
	}
	at := sampler.Draw{Seed: r.Seed, Pos: len(r.history)}
	return s.DistAt(dst, c.engine.logits(r, i), r.history, at)
}

// fail ends the text with an error of its next token.
func (c *choice) fail(err error) {
	r := c.run
	c.ended, c.ending = true, ending{Failed, fmt.Errorf("generate: token %d of the text: %w", len(r.tokens)-len(r.Prompt), err)}
}

// take adds a token that the rule has chosen.
func (c *choice) take(id int32) {
	r := c.run
	if r.PostSampling || r.Trace != nil {
		// What Pick would have left, but for the token.
		if _, err := r.sampler.PickDist(&r.dist, c.engine.logits(r, c.place()), r.tokens, r.at()); err != nil {
			c.fail(err)
			return
		}
		r.trace.Token, r.trace.Prob, r.trace.Uniform = id, r.dist.ProbOf(id), 0
	}
	c.add(id)
}

// add adds a token to the text.
func (c *choice) add(id int32) {
	e, r, i := c.engine, c.run, c.place()
	token := Token{ID: id, Index: len(r.tokens) - len(r.Prompt)}
	_, token.Drafted = r.draft.Next(i, id)
	token.Corrected = !token.Drafted && r.draft.Continues(i)
	if r.LogProbs || r.TopLogProbs > 0 {
		logits := e.target.Logits(r.target().output(i))
		token.LogProb = sampler.LogProb(logits, id)
		token.Top = sampler.TopLogProbs(nil, logits, r.TopLogProbs)
	}
	if r.PostSampling {
		token.PostSamplingLogProb = math.Log(r.dist.ProbOf(id))
		token.PostSamplingTop = topOf(&r.dist, r.TopLogProbs)
	}
	if r.Trace != nil {
		r.Trace(&r.trace)
	}
	r.sampler.Accept(id)
	token.Bytes = e.vocab.Piece(id)
	c.ended, c.ending = e.commit(r, token)
}

// at is the draw of a run's next token.
func (r *run) at() sampler.Draw { return sampler.Draw{Seed: r.Seed, Pos: len(r.tokens)} }

// topOf returns the n most probable tokens of a distribution, or all.
func topOf(d *sampler.Dist, n int) []sampler.TokenLogProb {
	var top []sampler.TokenLogProb
	for i := range min(n, d.Len()) {
		top = append(top, sampler.TokenLogProb{ID: d.Token(i), LogProb: math.Log(d.Prob(i))})
	}
	return top
}

// countPrompt adds to the tokens of its prompt that a run has evaluated.
func (e *Engine) countPrompt(r *run, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.ended {
		r.stats.Evaluated += n
	}
}

// commit adds a token to a run, and reports whether and how its text ends there.
func (e *Engine) commit(r *run, t Token) (ended bool, how ending) {
	isEnd := slices.Contains(r.EndTokens, t.ID) || !r.IgnoreEOG && e.vocab.IsEOG(t.ID)

	e.mu.Lock()
	defer e.mu.Unlock()
	if r.ended {
		return true, ending{}
	}
	if isEnd {
		r.stats.EndToken = t.ID
		return true, ending{reason: EndToken}
	}
	full := false
	r.tokens = append(r.tokens, t.ID)
	for _, s := range r.sequences {
		s.text = append(s.text, t.ID)
		full = full || len(s.text) > s.model.limits.Context
	}
	r.stats.Generated++
	r.times.last = time.Now()
	if r.stats.Generated == 1 {
		r.times.first = r.times.last
	}
	r.out, r.stats.Stop = r.text.push(r.out, t)
	switch {
	case r.stats.Stop != "":
		return true, ending{reason: StopString}
	case r.stats.Generated == r.MaxTokens:
		return true, ending{reason: MaxTokens}
	case full && !r.ContextShift:
		return true, ending{reason: ContextFull}
	}
	if len(r.out) > 0 {
		r.ready.Signal()
	}
	return false, ending{}
}
