package generate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sortes-llm/sortes/eval"
)

// A sequence is one of the evaluator's. What a run leaves in it stays there for
// the next that begins alike, until the room is needed.
type sequence struct {
	id   int
	run  *run    // nil while idle
	held []int32 // what an idle sequence holds
	used uint64  // Engine.clock when it was last released
}

// tokens returns what the sequence holds.
func (s *sequence) tokens() []int32 {
	if s.run != nil {
		return s.run.tokens[:s.run.fed]
	}
	return s.held
}

// minFork is the least number of tokens for which a sequence is copied: fewer
// are evaluated as fast.
const minFork = 32

// seat gives a run an idle sequence, of which there must be one, and reuses what
// one of them holds of the run's beginning: the sequence itself when most of
// what it holds is wanted, else a copy, into the sequence that was idle longest.
// The last token is always evaluated again, its logits are not kept.
func (e *Engine) seat(r *run) {
	source, shared := e.longestPrefix(r.tokens[:len(r.tokens)-1])
	s := e.oldestIdle()
	switch {
	case source == nil:
	case source.run == nil && (2*shared >= len(source.held) || source == s):
		s = source
	case shared >= minFork:
		if err := e.model.Copy(s.id, source.id); err != nil {
			e.log.Warn("a shared prefix could not be copied", "tokens", shared, "error", err)
			shared = 0
		}
	default:
		shared = 0
	}
	s.held = nil
	kept, err := e.truncate(s, shared)
	s.run, r.sequence, r.fed = r, s, kept
	e.live++

	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.end(r, Failed, err)
	}
	if !r.ended && r.times.seated.IsZero() {
		r.times.seated = time.Now()
		r.stats.Cached = kept
	}
}

// longestPrefix returns the sequence that shares most of its beginning with
// tokens, and how much: among equals an idle one, the last used. It returns nil
// where none shares any.
func (e *Engine) longestPrefix(tokens []int32) (*sequence, int) {
	var best *sequence
	longest := 0
	for i := range e.sequences {
		s := &e.sequences[i]
		n := commonPrefix(s.tokens(), tokens)
		if n == 0 {
			continue
		}
		better := n > longest
		if n == longest {
			better = s.run == nil && (best.run != nil || s.used > best.used)
		}
		if better {
			best, longest = s, n
		}
	}
	return best, longest
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// oldestIdle returns the idle sequence to overwrite: one that was not used yet,
// or else the one that was idle longest, or nil.
func (e *Engine) oldestIdle() *sequence {
	var oldest *sequence
	for i := range e.sequences {
		s := &e.sequences[i]
		if s.run == nil && (oldest == nil || s.used < oldest.used) {
			oldest = s
		}
	}
	return oldest
}

// truncate drops all but the first n tokens of a sequence, and all where its
// memory can drop no part. It returns how many are left.
func (e *Engine) truncate(s *sequence, n int) (int, error) {
	err := e.model.Truncate(s.id, n)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, eval.ErrNoRollback) {
		e.log.Warn("a sequence could not be truncated", "sequence", s.id, "to", n, "error", err)
	}
	if err := e.model.Truncate(s.id, 0); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	return 0, nil
}

// release takes the sequences from runs that have ended.
func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.sequences {
		s := &e.sequences[i]
		if s.run == nil || !s.run.ended {
			continue
		}
		e.clock++
		s.held, s.used, s.run = s.tokens(), e.clock, nil
		e.live--
		e.full = false
	}
}

// makeRoom is the answer to ErrNoSlot. It gives up the drafts of one step, or
// else the cache that was idle longest, or else that of the youngest run, which
// is queued again and later evaluated from its start: the oldest run always
// gets on, and all get the text that they would have got alone. When the oldest
// is alone and has no room, its text ends.
func (e *Engine) makeRoom(cause error) {
	if e.drafted > 0 {
		e.noDrafts = true
		return
	}
	var idle, youngest *sequence
	for i := range e.sequences {
		s := &e.sequences[i]
		switch {
		case s.run != nil:
			if youngest == nil || s.run.ticket > youngest.run.ticket {
				youngest = s
			}
		case len(s.held) > 0:
			if idle == nil || s.used < idle.used {
				idle = s
			}
		}
	}
	switch {
	case idle != nil:
		e.log.Debug("no room: an idle sequence is dropped", "tokens", len(idle.held))
		idle.held = nil
		if _, err := e.truncate(idle, 0); err != nil {
			e.fail(err)
		}
	case e.live > 1:
		e.log.Debug("no room: a request waits for another to end", "tokens", youngest.run.fed)
		e.unseat(youngest)
	default:
		e.mu.Lock()
		defer e.mu.Unlock()
		if r := youngest.run; len(r.tokens) > len(r.Prompt) {
			e.end(r, ContextFull, nil)
		} else {
			e.end(r, Failed, fmt.Errorf("generate: a prompt of %d tokens: %w", len(r.Prompt), cause))
		}
	}
}

// unseat takes the sequence from a run and queues it again.
func (e *Engine) unseat(s *sequence) {
	r := s.run
	s.run, s.held = nil, nil
	r.sequence, r.fed = nil, 0
	e.live--
	e.full = true
	_, err := e.truncate(s, 0)

	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.end(r, Failed, err)
	}
	if !r.ended {
		at, _ := slices.BinarySearchFunc(e.queue, r.ticket, func(q *run, ticket uint64) int {
			return int(q.ticket) - int(ticket)
		})
		e.queue = slices.Insert(e.queue, at, r)
	}
}
