package generate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/speculative"
)

// Errors that a stream yields, wrapped.
var (
	// ErrClosed: the engine was closed before the text had ended.
	ErrClosed = errors.New("the engine is closed")
	// ErrBusy: Options.MaxQueue requests are waiting already.
	ErrBusy = errors.New("too many requests are waiting")
	// ErrPromptTooLong: the context cannot hold the prompt.
	ErrPromptTooLong = errors.New("the prompt is longer than the context")
	// ErrNotExact: Options.Exact is set and the evaluator's logits depend on
	// what is evaluated beside them. New returns it.
	ErrNotExact = errors.New("exact mode is not possible")
)

// A Vocab says what tokens mean. The engine calls Piece from its own goroutine,
// IsEOG also from those of requests.
type Vocab interface {
	// Piece returns the bytes that a token stands for, possibly none, possibly
	// a part of a rune. They must not change any more.
	Piece(id int32) []byte
	// IsEOG reports whether a token ends a text.
	IsEOG(id int32) bool
}

// Options are the settings of an Engine. The zero value is a good choice.
type Options struct {
	// Exact promises that the text of a request does not depend on the
	// requests beside it nor on those before it, bit for bit. New measures
	// with Evaluator.Probe whether that is so, and fails where it is not.
	// Without Exact the promise holds up to the noise of the evaluator.
	Exact bool

	// PrefillChunk is the number of prompt tokens that one Eval takes at
	// most, all requests together: large ones read a prompt faster, small
	// ones let other requests wait less for their next token. 0 is 512, or
	// what the batch leaves: it must fit into Limits().Batch beside one row
	// for each other sequence.
	PrefillChunk int

	// Held says what the evaluator's sequences hold already, by sequence: their
	// tokens, as many as Evaluator.Len says. A request that begins alike starts
	// behind them.
	Held [][]int32

	// MaxQueue bounds the requests that wait for a sequence. More get
	// ErrBusy. 0 is no bound.
	MaxQueue int

	// Logger, where not nil, is told what a user of the text does not see:
	// failed evaluations, caches given up for want of room.
	Logger *slog.Logger

	// Amateurs are the models of Request.Contrast. Each must have the
	// vocabulary of the evaluator, and at least as many sequences and as large
	// a context. The engine owns them as it does the evaluator.
	Amateurs []eval.Evaluator

	// Drafts, where not nil, proposes how texts go on, and Rule decides which
	// of its tokens stand: with [speculative.Coupled], the default, the texts
	// are those without drafts. Where the memory of the evaluator cannot drop
	// the end of a sequence, drafting ends by itself. The engine owns both, and
	// the models that draft, until it is closed.
	Drafts *speculative.Cascade
	Rule   speculative.Rule

	tested func(*Engine) // tests look at the engine after every step
}

// An Engine generates text for many requests at once: all that are under way
// share each evaluation. Its methods may be called from any goroutine.
//
// It owns the evaluator, and uses it from one goroutine that is locked to its
// thread. While no request is under way that goroutine is blocked, and an
// evaluator with a method Idle() has been told so.
type Engine struct {
	models  []*model
	target  *model // the first of them
	vocab   Vocab
	options Options
	log     *slog.Logger
	ends    func() []int32 // the tokens that end a text by the vocabulary
	stopped chan struct{}  // closed when the loop has ended

	// The loop's own.
	runs       []*run        // with sequences, the oldest first
	clock      uint64        // counts releases, for least recently used
	full       bool          // a run gave up its sequences: seat none until another has ended
	took       time.Duration // the last evaluation
	combined   []float32     // see logits
	verifier   speculative.Verifier
	learns     bool // the drafters want rows of logits
	noDrafts   bool // for one step: their rows had no room
	noRollback bool // so that drafts do not pay

	// Shared with the goroutines of the requests. No evaluation and no
	// sampling happens under mu.
	mu     sync.Mutex
	wake   *sync.Cond // a request was queued, or the engine closed
	closed bool
	ticket uint64
	open   map[*run]struct{} // the runs that have not ended
	queue  []*run            // those without a sequence, by ticket
	shared int               // runs in the Eval under way that have not ended
	// evalCtx is what Eval is given, interrupt ends it.
	evalCtx   context.Context
	interrupt context.CancelCauseFunc
}

// New starts an engine. The evaluator must not be used by others until Close
// has returned; it must be closed after the engine, by whoever made it.
func New(m eval.Evaluator, v Vocab, o Options) (*Engine, error) {
	e := &Engine{
		vocab: v, options: o, log: o.Logger,
		stopped: make(chan struct{}),
		open:    map[*run]struct{}{},
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	target, err := newModel(m, o.PrefillChunk, e.log)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	if o.MaxQueue < 0 {
		return nil, fmt.Errorf("generate: MaxQueue is %d: it must be at least 0 (no bound)", o.MaxQueue)
	}
	if err := target.hold(o.Held); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	e.target, e.models = target, []*model{target}
	for i, m := range o.Amateurs {
		amateur, err := newAmateur(m, target, e.log)
		if err != nil {
			return nil, fmt.Errorf("generate: amateur %d: %w", i, err)
		}
		e.models = append(e.models, amateur)
	}
	if o.Exact {
		for _, m := range e.models {
			if err := requireExact(m.Evaluator); err != nil {
				return nil, err
			}
		}
	}
	if o.Drafts != nil {
		e.learns = o.Drafts.Learns()
	}
	e.ends = sync.OnceValue(func() []int32 { return endTokens(v, target.limits.Vocab) })
	e.wake = sync.NewCond(&e.mu)
	e.evalCtx, e.interrupt = newInterrupt()
	go e.loop()
	return e, nil
}

func newInterrupt() (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(context.Background())
}

// newAmateur checks that a model can follow every text of the target.
func newAmateur(m eval.Evaluator, target *model, log *slog.Logger) (*model, error) {
	l, t := m.Limits(), target.limits
	switch {
	case l.Vocab != t.Vocab:
		return nil, fmt.Errorf("a vocabulary of %d tokens, where the target has %d", l.Vocab, t.Vocab)
	case l.Sequences < t.Sequences:
		return nil, fmt.Errorf("%d sequences, where the target has %d", l.Sequences, t.Sequences)
	case l.Context < t.Context:
		return nil, fmt.Errorf("a context of %d tokens, where the target has %d", l.Context, t.Context)
	}
	return newModel(m, min(target.chunk, l.Batch-(l.Sequences-1)), log)
}

func endTokens(v Vocab, size int) []int32 {
	var ends []int32
	for id := range int32(size) {
		if v.IsEOG(id) {
			ends = append(ends, id)
		}
	}
	return ends
}

func requireExact(m eval.Evaluator) error {
	noise, err := m.Probe(context.Background())
	switch {
	case err != nil:
		return fmt.Errorf("generate: %w: the probe failed: %w", ErrNotExact, err)
	case noise.Rows == 0:
		return fmt.Errorf("generate: %w: the probe compared no rows", ErrNotExact)
	case !noise.Exact():
		return fmt.Errorf("generate: %w: with other rows in the batch a logit differs by up to %.3g (%d rows compared, up to %d tokens deep)",
			ErrNotExact, noise.MaxAbs, noise.Rows, noise.Depth)
	}
	return nil
}

// Close ends all streams with ErrClosed, interrupts the evaluation under way
// and returns when the evaluator is free. Only the first call does anything.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	for r := range e.open {
		e.end(r, Failed, fmt.Errorf("generate: %w", ErrClosed))
	}
	e.wake.Signal()
	e.mu.Unlock()
	<-e.stopped
}

// submit queues a request.
func (e *Engine) submit(r *run) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("generate: %w", ErrClosed)
	}
	if e.options.MaxQueue > 0 && len(e.queue) >= e.options.MaxQueue {
		return fmt.Errorf("generate: %w: %d", ErrBusy, len(e.queue))
	}
	e.ticket++
	r.ticket = e.ticket
	e.open[r] = struct{}{}
	e.queue = append(e.queue, r)
	e.wake.Signal()
	return nil
}

// end ends a run, unless it has ended: the text is settled and the stream told.
// Whoever comes first, the loop or the request's goroutine, decides how the
// text ended. The loop finds out when it next locks mu. Called with mu held.
func (e *Engine) end(r *run, reason FinishReason, err error) {
	if r.ended {
		return
	}
	r.ended = true
	r.err = err
	r.out = r.text.flush(r.out)
	r.times.end(&r.stats)
	r.stats.Finish = reason
	r.ready.Signal()

	delete(e.open, r)
	e.queue = slices.DeleteFunc(e.queue, func(q *run) bool { return q == r })
	if r.inEval {
		r.inEval = false
		if e.shared--; e.shared == 0 {
			e.interrupt(errNobodyWaits)
		}
	}
}

// finish is end for those who do not hold mu.
func (e *Engine) finish(r *run, reason FinishReason, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(r, reason, err)
}

var errNobodyWaits = errors.New("generate: all requests of the batch have ended")
