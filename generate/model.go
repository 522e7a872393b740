package generate

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/speculative"
)

// A model is an evaluator with what its sequences hold and the batch that it
// evaluates next. The first of an engine is the target; the others are the
// amateurs of contrastive decoding.
type model struct {
	eval.Evaluator
	brancher  eval.Brancher // the evaluator, where it takes trees, or nil
	limits    eval.Limits
	chunk     int // tokens of prompts that one batch takes at most
	sequences []sequence
	log       *slog.Logger

	batch []*sequence // those with a part in it
	left  int         // of chunk
	rows  []eval.Row
}

// A part is what a sequence has in a batch: tokens of its text that it does not
// hold yet, and in a round drafts of the next ones behind them.
type part struct {
	row    int // the first
	tokens int
	drafts []int32
	places []speculative.Place // of the drafts, where they are a tree
}

func (p *part) rows() int { return p.tokens + len(p.drafts) }

// output is the row whose logits follow the text at place i of the drafts.
func (p *part) output(i int) int { return p.row + p.tokens - 1 + i }

// A sequence is one of a model's. What a run leaves in it stays there for the
// next that begins alike, until the room is needed.
type sequence struct {
	model *model
	id    int
	run   *run    // nil while idle
	text  []int32 // of its run: what it begins with, and what was generated
	fed   int     // text[:fed] is in the sequence
	used  uint64  // Engine.clock when it was last released
	sound int     // text[:sound] was evaluated behind the tokens before it: no shift has moved them
	part          // empty where it has none
}

func (s *sequence) held() []int32 { return s.text[:s.fed] }

// newModel checks the limits of an evaluator. A chunk of 0 is the default.
func newModel(m eval.Evaluator, chunk int, log *slog.Logger) (*model, error) {
	l := m.Limits()
	if l.Vocab < 1 || l.Sequences < 1 || l.Context < 1 {
		return nil, fmt.Errorf("the evaluator's limits are %+v: all must be at least 1", l)
	}
	if min(l.Batch, l.Outputs) < l.Sequences {
		return nil, fmt.Errorf("a batch of %d rows, %d of them outputs, for %d sequences: each must have one", l.Batch, l.Outputs, l.Sequences)
	}
	largest := l.Batch - (l.Sequences - 1)
	if chunk < 0 || chunk > largest {
		return nil, fmt.Errorf("PrefillChunk is %d: it must be in [1, %d], or 0 for the default", chunk, largest)
	}
	if chunk == 0 {
		chunk = min(512, largest)
	}
	x := &model{Evaluator: m, limits: l, chunk: chunk, log: log, sequences: make([]sequence, l.Sequences)}
	if b, ok := m.(eval.Brancher); ok && b.Branches() > 0 {
		x.brancher = b
	}
	for i := range x.sequences {
		x.sequences[i].model, x.sequences[i].id = x, i
	}
	return x, nil
}

// hold takes in what the sequences hold already.
func (m *model) hold(texts [][]int32) error {
	if len(texts) > len(m.sequences) {
		return fmt.Errorf("Held names %d sequences, and the evaluator has %d", len(texts), len(m.sequences))
	}
	for i, text := range texts {
		if n := m.Len(i); n != len(text) {
			return fmt.Errorf("Held has %d tokens for sequence %d, which holds %d", len(text), i, n)
		}
		s := &m.sequences[i]
		s.text, s.fed = slices.Clone(text), len(text)
	}
	return nil
}

// idle returns the number of sequences without a run.
func (m *model) idle() int {
	n := 0
	for i := range m.sequences {
		if m.sequences[i].run == nil {
			n++
		}
	}
	return n
}

// minFork is the least number of tokens for which a sequence is copied: fewer
// are evaluated as fast.
const minFork = 32

// seat gives a text an idle sequence, of which there must be one, and reuses
// what one of them holds of its beginning: the sequence itself when most of
// what it holds is wanted, else a copy, into the sequence that was idle longest.
// The last token is always evaluated again, its logits are not kept.
func (m *model) seat(r *run, text []int32) (*sequence, error) {
	source, shared := m.longestPrefix(text[:len(text)-1])
	s := m.oldestIdle()
	switch {
	case source == nil:
	case source.run == nil && (2*shared >= source.fed || source == s):
		s = source
	case shared >= minFork:
		if err := m.Copy(s.id, source.id); err != nil {
			m.log.Warn("a shared prefix could not be copied", "tokens", shared, "error", err)
			shared = 0
		}
	default:
		shared = 0
	}
	kept, err := s.truncate(shared)
	s.run, s.text, s.fed, s.sound = r, slices.Clone(text), kept, math.MaxInt
	return s, err
}

// longestPrefix returns the sequence that shares most of its beginning with
// tokens, and how much: among equals an idle one, the last used. It returns nil
// where none shares any.
func (m *model) longestPrefix(tokens []int32) (*sequence, int) {
	var best *sequence
	longest := 0
	for i := range m.sequences {
		s := &m.sequences[i]
		n := commonPrefix(s.held(), tokens)
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
func (m *model) oldestIdle() *sequence {
	var oldest *sequence
	for i := range m.sequences {
		s := &m.sequences[i]
		if s.run == nil && (oldest == nil || s.used < oldest.used) {
			oldest = s
		}
	}
	return oldest
}

// truncate drops all but the first n tokens that a sequence holds, and all
// where its memory can drop no part. It returns how many are left.
func (s *sequence) truncate(n int) (int, error) { return s.keep(0, n) }

// keep is truncate for the branch of the last Eval that goes on.
func (s *sequence) keep(branch, n int) (int, error) {
	m := s.model
	var err error
	if branch > 0 {
		err = m.brancher.Keep(s.id, branch, n)
	} else {
		err = m.Truncate(s.id, n)
	}
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, eval.ErrNoRollback) {
		m.log.Warn("a sequence could not be truncated", "sequence", s.id, "to", n, "error", err)
	}
	if err := m.Truncate(s.id, 0); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	return 0, nil
}

// layOut writes the rows of the batch.
func (m *model) layOut() {
	m.rows = m.rows[:0]
	for _, s := range m.batch {
		s.row = len(m.rows)
		for i, t := range s.text[s.fed : s.fed+s.tokens] {
			output := s.fed+i == len(s.text)-1
			m.rows = append(m.rows, eval.Row{Token: t, Seq: s.id, Output: output})
		}
		for i, t := range s.drafts {
			row := eval.Row{Token: t, Seq: s.id, Output: true}
			if s.places != nil {
				row.First, row.Last = s.places[i].First, s.places[i].Last
			}
			m.rows = append(m.rows, row)
		}
	}
}

// branches returns how many branches are left for the drafts of one more text.
func (m *model) branches() int {
	if m.brancher == nil {
		return 0
	}
	left := m.brancher.Branches()
	for _, s := range m.batch {
		left -= leaves(s.places) - 1
	}
	return max(0, left)
}

// leaves returns how many leaves there are behind nodes of a tree, 1 without any.
func leaves(places []speculative.Place) int {
	n := 1
	for _, p := range places {
		n = max(n, p.Last)
	}
	return n
}
