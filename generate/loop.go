package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/sampler"
)

// A drafter proposes how a sequence goes on: at most n tokens after history.
type drafter interface {
	draft(history []int32, n int) []int32
}

// A part is what one run contributes to an Eval: a piece of its prompt, or a
// round: its last token and drafts of the next ones.
type part struct {
	run    *run
	row    int     // its first row
	rows   int     // drafts included
	drafts []int32 // the last rows
}

// loop runs the engine until it is closed. It is locked to its thread, because
// native evaluators do best on one.
func (e *Engine) loop() {
	defer close(e.stopped)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for e.next() {
		e.step()
		if e.options.tested != nil {
			e.options.tested(e)
		}
	}
}

// next waits until there is something to evaluate. It returns false when the
// engine is closed.
func (e *Engine) next() bool {
	for {
		e.release()
		for e.live < len(e.sequences) && !e.full {
			r := e.dequeue()
			if r == nil {
				break
			}
			e.seat(r)
		}
		if e.live > 0 {
			return true
		}
		if !e.sleep() {
			return false
		}
	}
}

// dequeue returns the run that waits longest, or nil.
func (e *Engine) dequeue() *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		return nil
	}
	r := e.queue[0]
	e.queue = slices.Delete(e.queue, 0, 1)
	return r
}

// sleep waits for a request. It returns false when the engine is closed.
func (e *Engine) sleep() bool {
	if m, ok := e.model.(interface{ Idle() }); ok {
		m.Idle()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.closed {
		e.wake.Wait()
	}
	return !e.closed
}

// step evaluates one batch and commits what follows from it. Where it fails,
// the sequences are as before, and the next step starts over.
func (e *Engine) step() {
	e.plan()
	err := e.eval()
	if err == nil {
		for _, p := range e.parts {
			e.advance(p)
		}
		return
	}
	for _, p := range e.parts {
		// An evaluator that cannot restore a sequence empties it.
		p.run.fed = min(p.run.fed, e.model.Len(p.run.sequence.id))
	}
	if errors.Is(err, eval.ErrNoSlot) {
		e.makeRoom(err)
	} else {
		e.fail(fmt.Errorf("generate: %w", err))
	}
}

// plan lays out the next batch. Every run that has its prompt behind it gets a
// row; prompts share one chunk, those that came first come first; drafts get
// the room that is left.
//
// A prompt is cut where the position is a multiple of the chunk, wherever its
// evaluation begins and whatever runs beside it.
func (e *Engine) plan() {
	e.parts, e.prompts = e.parts[:0], e.prompts[:0]
	for i := range e.sequences {
		r := e.sequences[i].run
		switch {
		case r == nil:
		case r.fed == len(r.tokens)-1:
			e.parts = append(e.parts, part{run: r, rows: 1})
		default:
			e.prompts = append(e.prompts, r)
		}
	}
	rounds := len(e.parts)

	slices.SortFunc(e.prompts, func(a, b *run) int { return cmp.Compare(a.ticket, b.ticket) })
	left := e.chunk
	for _, r := range e.prompts {
		n := min(e.chunk-r.fed%e.chunk, len(r.tokens)-1-r.fed)
		if n <= left {
			e.parts = append(e.parts, part{run: r, rows: n})
			left -= n
		}
	}

	e.drafted = 0
	if e.drafter != nil && !e.noDrafts {
		room := min(e.limits.Batch-(e.chunk-left), e.limits.Outputs) - rounds
		for i := range rounds {
			p := &e.parts[i]
			p.drafts = e.draft(p.run, room-e.drafted)
			p.rows += len(p.drafts)
			e.drafted += len(p.drafts)
		}
	}
	e.noDrafts = false
	e.layOut()
}

// draft returns at most room drafts, and no more than the context and the
// budget can use: a round always adds one token to them.
func (e *Engine) draft(r *run, room int) []int32 {
	room = min(room, e.limits.Context-len(r.tokens))
	if r.MaxTokens > 0 {
		room = min(room, r.MaxTokens-(len(r.tokens)-len(r.Prompt))-1)
	}
	if room <= 0 {
		return nil
	}
	drafts := e.drafter.draft(r.tokens, room)
	return drafts[:min(len(drafts), room)]
}

// layOut writes the rows of the parts.
func (e *Engine) layOut() {
	e.rows = e.rows[:0]
	for i := range e.parts {
		p := &e.parts[i]
		r := p.run
		p.row = len(e.rows)
		for i, t := range r.tokens[r.fed : r.fed+p.rows-len(p.drafts)] {
			output := r.fed+i == len(r.tokens)-1
			e.rows = append(e.rows, eval.Row{Token: t, Seq: r.sequence.id, Output: output})
		}
		for _, t := range p.drafts {
			e.rows = append(e.rows, eval.Row{Token: t, Seq: r.sequence.id, Output: true})
		}
	}
}

// eval evaluates the batch. It is interrupted when all runs in it have ended.
func (e *Engine) eval() error {
	e.mu.Lock()
	if e.evalCtx.Err() != nil {
		e.evalCtx, e.interrupt = context.WithCancelCause(context.Background())
	}
	ctx := e.evalCtx
	for _, p := range e.parts {
		if !p.run.ended {
			p.run.inEval = true
			e.shared++
		}
	}
	nobody := e.shared == 0
	e.mu.Unlock()
	if nobody {
		return errNobodyWaits
	}

	err := e.model.Eval(ctx, e.rows)

	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.parts {
		p.run.inEval = false
	}
	e.shared = 0
	return err
}

// advance takes what an Eval has brought a run: a piece of its prompt, or a
// round. In a round the rows behind the last token and behind each draft are
// read in turn, until the token chosen is not the draft: the tokens are those
// of rounds without drafts. What the drafts left behind is dropped.
func (e *Engine) advance(p part) {
	r := p.run
	r.fed += p.rows - len(p.drafts)
	if len(r.tokens) == len(r.Prompt) {
		e.countPrompt(r, p.rows-len(p.drafts))
	}
	if r.fed < len(r.tokens) {
		return
	}
	if r.PromptOnly {
		e.finish(r, MaxTokens, nil)
		return
	}
	start := len(r.tokens)
	for i := range len(p.drafts) + 1 {
		if !e.choose(r, p.row+i) || i < len(p.drafts) && r.tokens[start+i] != p.drafts[i] {
			break
		}
	}
	stood := commonPrefix(p.drafts, r.tokens[start:])
	r.fed += stood
	if stood < len(p.drafts) {
		kept, err := e.truncate(r.sequence, r.fed)
		if kept < r.fed {
			e.drafter = nil // it would cost more than it can save
		}
		r.fed = kept
		if err != nil {
			e.finish(r, Failed, err)
		}
	}
}

// choose draws the next token of a run from the logits of a row, and reports
// whether the run goes on. A panic in the user's code (a filter, the
// vocabulary, a trace) ends the run; its stream raises it again.
func (e *Engine) choose(r *run, row int) (more bool) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("choosing a token panicked", "panic", p, "stack", string(debug.Stack()))
			e.finish(r, Failed, userPanic{p})
			more = false
		}
	}()
	logits := e.model.Logits(row)
	token := Token{Index: len(r.tokens) - len(r.Prompt)}
	id, err := r.pick(logits)
	if err != nil {
		e.finish(r, Failed, fmt.Errorf("generate: token %d of the text: %w", token.Index, err))
		return false
	}
	token.ID = id
	if r.LogProbs || r.TopLogProbs > 0 {
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
	token.Bytes = e.vocab.Piece(id)
	return e.commit(r, token)
}

// pick draws the next token of a run and tells the sampler that it follows.
func (r *run) pick(logits []float32) (id int32, err error) {
	at := sampler.Draw{Seed: r.Seed, Pos: len(r.tokens)}
	if r.PostSampling {
		id, err = r.sampler.PickDist(&r.dist, logits, r.tokens, at)
	} else {
		id, err = r.sampler.Pick(logits, r.tokens, at)
	}
	if err == nil {
		r.sampler.Accept(id)
	}
	return id, err
}

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

// A userPanic is the error of a run whose user's code panicked.
type userPanic struct{ value any }

func (p userPanic) Error() string { return fmt.Sprintf("generate: panic: %v", p.value) }

// commit adds a token to a run, and reports whether the run goes on.
func (e *Engine) commit(r *run, t Token) bool {
	isEnd := slices.Contains(r.EndTokens, t.ID) || !r.IgnoreEOG && e.vocab.IsEOG(t.ID)

	e.mu.Lock()
	defer e.mu.Unlock()
	if r.ended {
		return false
	}
	if isEnd {
		r.stats.EndToken = t.ID
		e.end(r, EndToken, nil)
		return false
	}
	r.tokens = append(r.tokens, t.ID)
	r.stats.Generated++
	r.times.last = time.Now()
	if r.stats.Generated == 1 {
		r.times.first = r.times.last
	}
	r.out, r.stats.Stop = r.text.push(r.out, t)
	switch {
	case r.stats.Stop != "":
		e.end(r, StopString, nil)
	case r.stats.Generated == r.MaxTokens:
		e.end(r, MaxTokens, nil)
	case len(r.tokens) > e.limits.Context:
		e.end(r, ContextFull, nil)
	case len(r.out) > 0:
		r.ready.Signal()
	}
	return !r.ended
}

// fail ends the runs of the batch. Where all of them have ended already,
// because the Eval was interrupted, it does nothing.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed := 0
	for _, p := range e.parts {
		if !p.run.ended {
			e.end(p.run, Failed, err)
			failed++
		}
	}
	if failed > 0 {
		e.log.Warn("an evaluation failed", "rows", len(e.rows), "requests", failed, "error", err)
	}
}
