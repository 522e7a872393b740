package generate

import (
	"fmt"
	"slices"
	"time"
)

// hasRoom reports whether there are idle sequences for a run.
func (e *Engine) hasRoom(r *run) bool {
	wanted := 1 // of the target
	if r.Guidance != nil {
		wanted++
	}
	for _, m := range e.models {
		if m.idle() < wanted {
			return false
		}
		if wanted = 1; r.Contrast == nil {
			break // the amateurs are not asked
		}
	}
	return true
}

// seat gives a run its sequences, for which there must be room.
func (e *Engine) seat(r *run) {
	var failed error
	for _, b := range e.beginnings(r) {
		s, err := b.model.seat(r, b.text)
		if err != nil {
			failed = err
		}
		r.sequences = append(r.sequences, s)
	}
	r.left = nil
	e.runs = append(e.runs, r)

	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil {
		e.end(r, Failed, failed)
	}
	if !r.ended && r.times.seated.IsZero() {
		r.times.seated = time.Now()
		r.stats.Cached = r.target().fed
	}
}

// target returns the sequence of the target.
func (r *run) target() *sequence { return r.sequences[0] }

// inBatch reports whether a run has a part in the batches.
func (r *run) inBatch() bool {
	return slices.ContainsFunc(r.sequences, func(s *sequence) bool { return s.tokens > 0 })
}

// release takes the sequences from runs that have ended.
func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs = slices.DeleteFunc(e.runs, func(r *run) bool {
		if r.ended {
			e.leave(r)
			e.full = false
		}
		return r.ended
	})
}

// leave takes the sequences from a run. What they hold stays.
func (e *Engine) leave(r *run) {
	if e.options.Drafts != nil {
		e.options.Drafts.End(r.target().id)
	}
	e.clock++
	for _, s := range r.sequences {
		if s.sound < s.fed { // what was moved serves no other text
			s.fed, _ = s.truncate(s.sound)
		}
		s.run, s.used, s.part = nil, e.clock, part{}
		s.text = s.held()
	}
	r.sequences, r.round = nil, false
}

// giveUpDrafts ends drafting for an engine whose memory dropped all of a
// sequence where the end was meant: reading it anew costs more than drafts save.
func (e *Engine) giveUpDrafts(s *sequence) {
	if !e.noRollback {
		e.log.Warn("no drafts any more: the memory of a model cannot drop the end of a sequence", "sequence", s.id)
	}
	e.noRollback = true
}

// makeRoom is the answer to ErrNoSlot. It gives up the drafts of one step, or
// else what a sequence of the model holds that was idle longest, or else the
// sequences of the youngest run, which is queued again and later evaluated from
// its start: the oldest run always gets on, and all get the text that they would
// have got alone. When the oldest is alone and has no room, its text ends.
func (e *Engine) makeRoom(m *model, cause error) {
	if slices.ContainsFunc(m.batch, func(s *sequence) bool { return len(s.drafts) > 0 }) {
		e.noDrafts = true
		return
	}
	var idle *sequence
	for i := range m.sequences {
		s := &m.sequences[i]
		if s.run == nil && s.fed > 0 && (idle == nil || s.used < idle.used) {
			idle = s
		}
	}
	var youngest *run
	running := 0
	for _, r := range e.runs { // oldest first
		if slices.ContainsFunc(r.sequences, func(s *sequence) bool { return s.model == m }) {
			youngest = r
			running++
		}
	}
	switch {
	case idle != nil:
		e.log.Debug("no room: an idle sequence is dropped", "tokens", idle.fed)
		_, err := idle.truncate(0)
		idle.text, idle.fed = nil, 0
		if err != nil {
			e.fail(err)
		}
	case running > 1:
		e.log.Debug("no room: a request waits for another to end", "tokens", youngest.target().fed)
		e.unseat(youngest)
	default:
		e.mu.Lock()
		defer e.mu.Unlock()
		if r := youngest; len(r.tokens) > len(r.Prompt) {
			e.end(r, ContextFull, nil)
		} else {
			e.end(r, Failed, fmt.Errorf("generate: a prompt of %d tokens: %w", len(r.Prompt), cause))
		}
	}
}

// unseat takes the sequences from a run, empties them and queues it again.
func (e *Engine) unseat(r *run) {
	var failed error
	sequences := r.sequences
	var left []beginning
	for _, s := range sequences {
		left = append(left, beginning{s.model, slices.Clone(s.text)})
	}
	e.leave(r)
	r.left = left
	for _, s := range sequences {
		if _, err := s.truncate(0); err != nil {
			failed = err
		}
		s.text, s.fed = nil, 0
	}
	e.runs = slices.DeleteFunc(e.runs, func(x *run) bool { return x == r })
	e.full = true

	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil {
		e.end(r, Failed, failed)
	}
	if !r.ended {
		at, _ := slices.BinarySearchFunc(e.queue, r.ticket, func(q *run, ticket uint64) int {
			return int(q.ticket) - int(ticket)
		})
		e.queue = slices.Insert(e.queue, at, r)
	}
}
