package generate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/sortes-llm/sortes/eval"
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

	// MaxQueue bounds the requests that wait for a sequence. More get
	// ErrBusy. 0 is no bound.
	MaxQueue int

	// Logger, where not nil, is told what a user of the text does not see:
	// failed evaluations, caches given up for want of room.
	Logger *slog.Logger

	drafter drafter       // nil for none
	tested  func(*Engine) // tests look at the engine after every step
}

// An Engine generates text for many requests at once: all that are under way
// share each evaluation. Its methods may be called from any goroutine.
//
// It owns the evaluator, and uses it from one goroutine that is locked to its
// thread. While no request is under way that goroutine is blocked, and an
// evaluator with a method Idle() has been told so.
type Engine struct {
	model   eval.Evaluator
	vocab   Vocab
	limits  eval.Limits
	chunk   int // see Options.PrefillChunk
	options Options
	log     *slog.Logger
	ends    func() []int32 // the tokens that end a text by the vocabulary
	stopped chan struct{}  // closed when the loop has ended

	// The loop's own.
	sequences []sequence
	live      int    // sequences with a run
	clock     uint64 // counts releases, for least recently used
	full      bool   // a run gave up its sequence: seat none until another has ended
	drafter   drafter
	noDrafts  bool   // for one step: their rows had no room
	parts     []part // of the batch
	prompts   []*run // that are not read yet
	drafted   int    // rows of the batch that are drafts
	rows      []eval.Row

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
	l := m.Limits()
	if l.Vocab < 1 || l.Sequences < 1 || l.Context < 1 {
		return nil, fmt.Errorf("generate: the evaluator's limits are %+v: all must be at least 1", l)
	}
	if min(l.Batch, l.Outputs) < l.Sequences {
		return nil, fmt.Errorf("generate: a batch of %d rows, %d of them outputs, for %d sequences: each must have one", l.Batch, l.Outputs, l.Sequences)
	}
	largest := l.Batch - (l.Sequences - 1)
	if o.PrefillChunk < 0 || o.PrefillChunk > largest {
		return nil, fmt.Errorf("generate: PrefillChunk is %d: it must be in [1, %d], or 0 for the default", o.PrefillChunk, largest)
	}
	if o.MaxQueue < 0 {
		return nil, fmt.Errorf("generate: MaxQueue is %d: it must be at least 0 (no bound)", o.MaxQueue)
	}
	if o.Exact {
		if err := requireExact(m); err != nil {
			return nil, err
		}
	}
	e := &Engine{
		model: m, vocab: v, limits: l, options: o,
		chunk:     o.PrefillChunk,
		drafter:   o.drafter,
		log:       o.Logger,
		stopped:   make(chan struct{}),
		sequences: make([]sequence, l.Sequences),
		open:      map[*run]struct{}{},
	}
	if e.chunk == 0 {
		e.chunk = min(512, largest)
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	for i := range e.sequences {
		e.sequences[i].id = i
	}
	e.ends = sync.OnceValue(func() []int32 { return endTokens(v, l.Vocab) })
	e.wake = sync.NewCond(&e.mu)
	e.evalCtx, e.interrupt = context.WithCancelCause(context.Background())
	go e.loop()
	return e, nil
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
