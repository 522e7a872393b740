package generate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/sortes-llm/sortes/eval"
)

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
	e.release()
}

// next waits until there is something to evaluate. It returns false when the
// engine is closed.
func (e *Engine) next() bool {
	for {
		e.release()
		for !e.full {
			r := e.dequeue()
			if r == nil {
				break
			}
			e.seat(r)
		}
		if len(e.runs) > 0 {
			return true
		}
		if !e.sleep() {
			return false
		}
	}
}

// dequeue returns the run that waits longest, or nil if it has to wait on.
func (e *Engine) dequeue() *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 || !e.hasRoom(e.queue[0]) {
		return nil
	}
	r := e.queue[0]
	e.queue = e.queue[1:]
	return r
}

// sleep waits for a request. It returns false when the engine is closed.
func (e *Engine) sleep() bool {
	for _, m := range e.models {
		if m, ok := m.Evaluator.(interface{ Idle() }); ok {
			m.Idle()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.closed {
		e.wake.Wait()
	}
	return !e.closed
}

// step evaluates one batch of each model and commits what follows from it.
// Where that fails, the sequences are as before, and the next step starts over.
func (e *Engine) step() {
	e.plan()
	failed, err := e.eval()
	if err != nil {
		e.undo(failed)
		if errors.Is(err, eval.ErrNoSlot) {
			e.makeRoom(failed, err)
		} else {
			e.fail(fmt.Errorf("generate: %w", err))
		}
		return
	}
	e.observeEval()
	for _, r := range e.runs {
		e.advance(r)
	}
}

// eval evaluates the batches of all models. It is interrupted when all runs in
// them have ended. Where it fails it returns the model that did.
func (e *Engine) eval() (*model, error) {
	ctx, wanted := e.share((*run).inBatch)
	if !wanted {
		return e.target, errNobodyWaits
	}
	defer e.unshare()
	start := time.Now()
	for _, m := range e.models {
		if len(m.rows) > 0 {
			if err := m.Eval(ctx, m.rows); err != nil {
				return m, err
			}
		}
	}
	e.took = time.Since(start)
	return nil, nil
}

// share returns a context that is done when all runs of those wanted have ended,
// and reports whether any has not. unshare must follow.
func (e *Engine) share(wanted func(*run) bool) (context.Context, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.evalCtx.Err() != nil {
		e.evalCtx, e.interrupt = newInterrupt()
	}
	for _, r := range e.runs {
		if !r.ended && wanted(r) {
			r.inEval = true
			e.shared++
		}
	}
	return e.evalCtx, e.shared > 0
}

func (e *Engine) unshare() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		r.inEval = false
	}
	e.shared = 0
}

// undo drops what a step has left in the models that it had evaluated when one
// failed.
func (e *Engine) undo(failed *model) {
	for _, m := range e.models {
		for _, s := range m.batch {
			// An evaluator that cannot restore a sequence empties it.
			s.fed = min(s.fed, m.Len(s.id))
			if s.fed == m.Len(s.id) {
				continue
			}
			kept, err := s.truncate(s.fed)
			if s.fed = kept; err != nil {
				e.finish(s.run, Failed, err)
			}
		}
		if m == failed {
			return
		}
	}
}

// fail ends the runs of the batch. Where all of them have ended already,
// because the Eval was interrupted, it does nothing.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed, rows := 0, 0
	for _, m := range e.models {
		rows += len(m.rows)
	}
	for _, r := range e.runs {
		if !r.ended && r.inBatch() {
			e.end(r, Failed, err)
			failed++
		}
	}
	if failed > 0 {
		e.log.Warn("an evaluation failed", "rows", rows, "requests", failed, "error", err)
	}
}
