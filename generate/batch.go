package generate

import (
	"cmp"
	"math"
	"slices"

	"github.com/sortes-llm/sortes/speculative"
)

// plan lays out the next batch of each model. Texts grow in rounds: a run whose
// sequences all come to the end of their text gets one, and drafts where there
// is room for them. All others are prompts that are read in pieces. Those that
// came first come first, and share one chunk.
//
// A text is cut where the position is a multiple of the chunk, wherever its
// evaluation begins and whatever runs beside it.
func (e *Engine) plan() {
	for _, m := range e.models {
		m.batch, m.left = m.batch[:0], m.chunk
		for i := range m.sequences {
			m.sequences[i].part = part{}
		}
	}
	slices.SortFunc(e.runs, func(a, b *run) int { return cmp.Compare(a.ticket, b.ticket) })
	rounds := 0
	for _, r := range e.runs {
		if r.round = r.plan(); r.round {
			rounds++
		}
	}
	for _, r := range e.runs {
		if r.draft, r.drafting = (speculative.Draft{}), false; r.round && !r.reads() && e.options.Drafts != nil {
			e.draft(r, rounds)
		}
	}
	e.noDrafts = false
	for _, m := range e.models {
		m.layOut()
	}
}

// plan gives a run its part of the batches, and reports whether it is a round.
func (r *run) plan() bool {
	round := true
	for _, s := range r.sequences {
		s.tokens = s.next()
		round = round && s.fed+s.tokens == len(s.text)
	}
	for _, s := range r.sequences {
		if !round && s.fed+s.tokens == len(s.text) {
			s.tokens-- // the last token waits for a round
		}
		if s.tokens > 0 {
			s.model.batch = append(s.model.batch, s)
		}
	}
	return round
}

// reads reports whether a round has more of a text before it than the last
// token: such a round has no drafts, and says nothing of what others take.
func (r *run) reads() bool {
	return slices.ContainsFunc(r.sequences, func(s *sequence) bool { return s.tokens > 1 })
}

// next returns how many tokens of its text a sequence gets to read: those up to
// the end of a chunk, if the batch takes as many. A single one has always room.
func (s *sequence) next() int {
	m := s.model
	n := min(m.chunk-s.fed%m.chunk, len(s.text)-s.fed)
	switch {
	case n <= 1:
		return n
	case n > m.left:
		return 0
	}
	m.left -= n
	return n
}

// draft adds drafts to a round, no more than the batches, the context and the
// budget can use: a round always adds one token to them.
func (e *Engine) draft(r *run, rounds int) {
	room := math.MaxInt
	if r.MaxTokens > 0 {
		room = r.MaxTokens - (len(r.tokens) - len(r.Prompt)) - 1
	}
	for _, s := range r.sequences {
		m := s.model
		rows, outputs := m.size()
		each := 0 // how many sequences of the model get the drafts
		for _, other := range r.sequences {
			if other.model == m {
				each++
			}
		}
		room = min(room, (m.limits.Batch-rows)/each, (m.limits.Outputs-outputs)/each, m.limits.Context-len(s.text))
	}
	if r.NoDrafts || e.noDrafts || e.noRollback {
		room = 0
	}
	batch := speculative.Batch{Texts: rounds, Rows: e.judged() - r.target().rows(), Room: max(0, room)}
	text := r.drafterText()
	// Of several sequences each would need its own; and a tree leaves its cells in
	// another order, by which sums are rounded.
	if len(r.sequences) == 1 && !e.options.Exact {
		text.Branches = e.target.branches()
	}
	ctx, wanted := e.share(func(x *run) bool { return x == r })
	if !wanted {
		return
	}
	defer e.unshare()
	defer func() { // the drafter calls filters of the user's
		if p := recover(); p != nil {
			e.finish(r, Failed, e.panicked(p))
		}
	}()
	var err error
	r.draft, r.report, err = e.options.Drafts.Draft(ctx, text, batch)
	if err != nil && ctx.Err() == nil {
		e.log.Warn("a drafter failed, and drafts no more for this text", "error", err)
	}
	r.drafting = true
	for _, s := range r.sequences {
		s.drafts = r.draft.Tokens
	}
	if r.draft.Parents != nil {
		r.places = r.draft.Layout(r.places)
		r.target().places = r.places
	}
}

// drafterText is what drafters are told of a run.
func (r *run) drafterText() speculative.Text {
	return speculative.Text{Slot: r.target().id, History: r.tokens, PromptLen: len(r.Prompt), Sampler: r.sampler, Seed: r.Seed}
}

// readDrafts lets the drafters read a text that the target has just read.
func (e *Engine) readDrafts(r *run) {
	if e.options.Drafts == nil || r.NoDrafts || e.noRollback || !r.reads() {
		return
	}
	ctx, wanted := e.share(func(x *run) bool { return x == r })
	if !wanted {
		return
	}
	defer e.unshare()
	if err := e.options.Drafts.Read(ctx, r.drafterText()); err != nil && ctx.Err() == nil {
		e.log.Warn("a drafter could not read the text", "error", err)
	}
}

// observeEval tells the controller of the drafts what an evaluation took, if
// rounds were all that there was in it. Requests with amateurs and requests
// without, in one engine, blur what it knows.
func (e *Engine) observeEval() {
	if e.options.Drafts == nil {
		return
	}
	for _, m := range e.models {
		for _, s := range m.batch {
			if !s.run.round || s.run.reads() {
				return
			}
		}
	}
	e.options.Drafts.Controller().Evaluated(e.judged(), e.took)
}

// judged returns the rows of the target's batch as the controller counts them:
// a draft once, also where a second sequence of its text has it too.
func (e *Engine) judged() int {
	n := 0
	for _, s := range e.target.batch {
		n += s.tokens
		if s == s.run.target() {
			n += len(s.drafts)
		}
	}
	return n
}

// size returns the rows of a batch, and how many of them are outputs.
func (m *model) size() (rows, outputs int) {
	for _, s := range m.batch {
		rows += s.rows()
		outputs += len(s.drafts)
		if s.run.round {
			outputs++
		}
	}
	return rows, outputs
}
