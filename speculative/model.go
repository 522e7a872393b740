package speculative

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/sampler"
)

// ModelOptions are the settings of a Model. The zero value is good for a draft
// model with the target's vocabulary.
type ModelOptions struct {
	// Rule is the one that will judge the drafts.
	Rule Rule

	// Vocab is the number of tokens of the target, where the draft model has
	// another (see [CheckVocab]). 0 means the same.
	Vocab int

	// MaxTokens bounds a draft. 0 is no bound.
	MaxTokens int

	// Widths, where there are any, make trees of drafts for texts with
	// branches ([Text].Branches): how many tokens are proposed at each
	// position, and one at those behind. The draft goes on behind the first of
	// them, so that the others cost no evaluation of the draft model: {3} is
	// 3+1+1 and so on. At temperature 0 a rule other than Coupled leaves
	// nothing to draw beside the first.
	Widths []int

	// PMin ends a draft before a token where the draft model gives its most
	// likely one less than that probability, filters and temperature aside. 0
	// to 1; 0 is off.
	PMin float64

	// IsEnd, where not nil, reports whether a token ends a text. Nothing is
	// proposed behind it.
	IsEnd func(token int32) bool
}

// check reports what is wrong with the options for a model of these limits.
func (o ModelOptions) check(l eval.Limits) error {
	switch {
	case min(l.Vocab, l.Sequences, l.Context, l.Batch, l.Outputs) < 1:
		return fmt.Errorf("speculative: the limits of the draft model are %+v: all must be at least 1", l)
	case o.Vocab < 0:
		return fmt.Errorf("speculative: Vocab is %d, want a number of tokens, or 0 for that of the draft model", o.Vocab)
	case o.MaxTokens < 0:
		return fmt.Errorf("speculative: MaxTokens is %d, want 1 or more, or 0 for no bound", o.MaxTokens)
	case !(o.PMin >= 0 && o.PMin <= 1):
		return fmt.Errorf("speculative: PMin is %v, want 0 to 1", o.PMin)
	}
	for i, w := range o.Widths {
		if w < 1 {
			return fmt.Errorf("speculative: Widths has %d at position %d, want 1 or more", w, i)
		}
	}
	return o.Rule.check()
}

// Branches returns in how many ways besides the first the drafts of a text go on
// with Widths: what the target has to allow for each text ([Text].Branches).
func (o ModelOptions) Branches() int {
	n := 0
	for _, w := range o.Widths {
		n += w - 1
	}
	return n
}

// A Model is a Drafter: a small model that draws what it proposes through the
// text's own sampler. It has a sequence for each slot, in which it evaluates
// each token once: what is rejected is dropped, the rest stays for the next
// round, and for the next text of the slot as far as it begins alike.
//
// It has no draft, and no error, where its context or its cache has no room. A
// text with a token that the draft model does not have is an error. Where the
// memory of the draft model cannot drop the end of a sequence
// ([eval.ErrNoRollback]), the text is read anew once, and from then on drafts
// have one token, behind which there is nothing to drop.
type Model struct {
	model   eval.Evaluator
	options ModelOptions
	limits  eval.Limits
	single  bool // no rollback
	slots   []modelSlot
	rows    []eval.Row
	padded  []float32 // a row of the draft model as long as the target's
	top     []sampler.TokenLogProb
}

// A modelSlot is what a Model knows of the text in a slot.
type modelSlot struct {
	live    bool
	text    []int32 // the history and what was drafted behind it
	fed     int     // how many of its tokens the sequence held last
	sampler *sampler.Sampler
	of      *sampler.Sampler // what sampler is a clone of
	dists   []sampler.Dist
	failed  error // for the next Draft to return
	tree    Tree  // of the draft, where it is one
}

var _ Drafter = (*Model)(nil)

// NewModel returns a drafter that uses an evaluator of its own. It needs a
// sequence for each slot.
func NewModel(m eval.Evaluator, o ModelOptions) (*Model, error) {
	l := m.Limits()
	if err := o.check(l); err != nil {
		return nil, err
	}
	d := &Model{model: m, options: o, limits: l, slots: make([]modelSlot, l.Sequences)}
	if o.Vocab > l.Vocab {
		d.padded = make([]float32, o.Vocab)
		for i := l.Vocab; i < o.Vocab; i++ {
			d.padded[i] = float32(math.Inf(-1))
		}
	}
	return d, nil
}

// Draft implements Drafter. It evaluates what is new in the history, in batches
// as large as the model takes, and then one token after the other. A done ctx
// interrupts it. Another error behind the first token of a draft lets the draft
// stand, and is returned by the next call for the slot.
func (m *Model) Draft(ctx context.Context, t Text, n int) (Draft, error) {
	if t.Slot < 0 || t.Slot >= len(m.slots) {
		return Draft{}, fmt.Errorf("speculative: slot %d, where the draft model has %d sequences", t.Slot, len(m.slots))
	}
	s := &m.slots[t.Slot]
	s.live = true
	if err := s.failed; err != nil {
		s.failed = nil
		return Draft{}, err
	}
	start := len(t.History)
	if n = m.bound(start, n); n <= 0 || start == 0 {
		return Draft{}, nil
	}
	if err := m.follow(t.Slot, t.History); err != nil {
		return Draft{}, fmt.Errorf("speculative: draft model: %w", err)
	}
	if m.single {
		n = 1
	}
	err := m.extend(ctx, t, n)
	tokens := s.text[start:len(s.text):len(s.text)]
	if err != nil && !errors.Is(err, eval.ErrNoSlot) {
		err = fmt.Errorf("speculative: draft model: %w", err)
		if ctx.Err() != nil || len(tokens) == 0 {
			return Draft{}, err
		}
		s.failed = err
	}
	if m.branches(t) {
		return s.tree.draft(), nil
	}
	d := Draft{Tokens: tokens}
	if m.options.Rule != Coupled {
		d.Dists = s.dists[:len(tokens)]
	}
	return d, nil
}

// Read implements Reader: it evaluates the history but for its last token. It
// does nothing where there is no room.
func (m *Model) Read(ctx context.Context, t Text) error {
	n := len(t.History) - 1
	if t.Slot < 0 || t.Slot >= len(m.slots) || n < 1 || n > m.limits.Context {
		return nil
	}
	s := &m.slots[t.Slot]
	s.live = true
	if err := m.follow(t.Slot, t.History); err != nil {
		return fmt.Errorf("speculative: draft model: %w", err)
	}
	for s.fed < n {
		err := m.feed(ctx, t.Slot, n, false)
		if errors.Is(err, eval.ErrNoSlot) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("speculative: draft model: %w", err)
		}
	}
	return nil
}

// branches reports whether the drafts of a text are trees.
func (m *Model) branches(t Text) bool {
	return t.Branches > 0 && len(m.options.Widths) > 0 && !m.single
}

// bound returns how many tokens a draft may have behind a history. The last of
// them is not evaluated.
func (m *Model) bound(history, n int) int {
	if m.options.MaxTokens > 0 {
		n = min(n, m.options.MaxTokens)
	}
	return min(n, m.limits.Context-history+1)
}

// End implements Drafter. What the sequence holds stays, until the room is
// needed.
func (m *Model) End(slot int) {
	if slot >= 0 && slot < len(m.slots) {
		s := &m.slots[slot]
		s.live, s.sampler, s.of, s.failed = false, nil, nil, nil
	}
}

// follow makes a slot's text the history, and drops what its sequence holds
// beyond. The last token is always left to evaluate: its logits are not kept.
func (m *Model) follow(slot int, history []int32) error {
	s := &m.slots[slot]
	held := m.model.Len(slot)
	s.fed = min(s.fed, held) // dropped, or lost in a failed Eval
	keep := 0
	for keep < min(s.fed, len(history)-1) && s.text[keep] == history[keep] {
		keep++
	}
	if keep < held {
		err := m.model.Truncate(slot, keep)
		if errors.Is(err, eval.ErrNoRollback) {
			m.single = true
		}
		if err != nil {
			keep = 0
			if err := m.model.Truncate(slot, 0); err != nil {
				return err
			}
		}
	}
	s.text = append(s.text[:keep], history[keep:]...)
	s.fed = keep
	return nil
}

// extend drafts up to n tokens behind a slot's text. Of a tree it makes the
// first of each position part of the text.
func (m *Model) extend(ctx context.Context, t Text, n int) error {
	s := &m.slots[t.Slot]
	start := len(s.text)
	branching, beside, last := m.branches(t), t.Branches, Root
	s.tree = Tree{Tokens: s.tree.Tokens[:0], Parents: s.tree.Parents[:0]}
	stateful := t.Sampler.Stateful()
	if s.of != t.Sampler || stateful {
		s.sampler, s.of = t.Sampler.Clone(), t.Sampler
	}
	for i := 0; i < n; i++ {
		logits, err := m.read(ctx, t.Slot)
		if err != nil {
			return err
		}
		p := m.likeliest(logits, t)
		if p < m.options.PMin {
			return nil
		}
		more := true
		if t.Weigh != nil && !branching {
			var propose bool
			if propose, more = t.Weigh(p); !propose {
				return nil
			}
		}
		var x int32
		if branching {
			width := min(m.width(i), n-i, 1+beside)
			node := len(s.tree.Tokens)
			if err := m.fan(s, last, width, logits, t.Seed, start); err != nil {
				return err
			}
			x, last = s.tree.Tokens[node], node
			others := len(s.tree.Tokens) - node - 1
			n, beside = n-others, beside-others
		} else if x, err = m.draw(s, i, logits, t.Seed, start); err != nil {
			return err
		}
		s.text = append(s.text, x)
		if !more || m.options.IsEnd != nil && m.options.IsEnd(x) {
			return nil
		}
		if stateful {
			s.sampler.Accept(x)
		}
	}
	return nil
}

// draw draws the i-th token of a draft.
func (m *Model) draw(s *modelSlot, i int, logits []float32, seed uint64, start int) (int32, error) {
	var q *sampler.Dist
	if m.options.Rule != Coupled {
		if i == len(s.dists) {
			s.dists = append(s.dists, sampler.Dist{})
		}
		q = &s.dists[i]
	}
	return m.options.Rule.Draw(q, s.sampler, logits, s.text, seed, start)
}

// width returns how many tokens of a tree are proposed at a position.
func (m *Model) width(i int) int {
	if i < len(m.options.Widths) {
		return m.options.Widths[i]
	}
	return 1
}

// fan adds up to width children to a node of a slot's tree, at least one. With
// Coupled the others are what the target would draw if it could not draw those
// before, with the noise for that position: a row may be written to.
func (m *Model) fan(s *modelSlot, parent, width int, logits []float32, seed uint64, start int) error {
	at := sampler.Draw{Seed: seed, Pos: len(s.text)}
	if m.options.Rule != Coupled {
		var q sampler.Dist // the tree keeps it
		if err := s.sampler.DistAt(&q, logits, s.text, at); err != nil {
			return err
		}
		for range width {
			if s.tree.Draw(parent, &q, seed, start) == Root {
				return nil
			}
		}
		return nil
	}
	chooser := s.sampler
	for i := range width {
		x, err := chooser.Pick(logits, s.text, at)
		if i > 0 && (err != nil || s.tree.hasChild(parent, x)) {
			return nil // there is no other
		}
		if err != nil {
			return err
		}
		s.tree.Add(parent, x)
		if i == 0 && width > 1 && s.sampler.Stateful() {
			chooser = s.sampler.Clone() // what draws beside the first token must not move the state
		}
		logits[x] = float32(math.Inf(-1))
	}
	return nil
}

// likeliest returns the probability that the draft model gives its most likely
// token, where somebody wants to know: else, and where there is none, which the
// draw then says, it is 1.
func (m *Model) likeliest(logits []float32, t Text) float64 {
	if m.options.PMin == 0 && t.Weigh == nil {
		return 1
	}
	m.top = sampler.TopLogProbs(m.top[:0], logits, 1)
	if len(m.top) == 0 {
		return 1
	}
	return math.Exp(m.top[0].LogProb)
}

// read evaluates what is left of a slot's text, at least one token, and returns
// the logits that follow, one for each token of the target.
func (m *Model) read(ctx context.Context, slot int) ([]float32, error) {
	s := &m.slots[slot]
	for s.fed < len(s.text) {
		if err := m.feed(ctx, slot, len(s.text), true); err != nil {
			return nil, err
		}
	}
	return m.fit(m.model.Logits(len(m.rows) - 1)), nil
}

// feed evaluates a batch of the first n tokens of a slot's text, and says of the
// last of them whether its logits are wanted. It gives up what ended texts have
// left where there is no room.
func (m *Model) feed(ctx context.Context, slot, n int, output bool) error {
	s := &m.slots[slot]
	m.rows = m.rows[:0]
	for _, x := range s.text[s.fed:min(s.fed+m.limits.Batch, n)] {
		m.rows = append(m.rows, eval.Row{Token: x, Seq: slot})
	}
	m.rows[len(m.rows)-1].Output = output && s.fed+len(m.rows) == n
	err := m.model.Eval(ctx, m.rows)
	for errors.Is(err, eval.ErrNoSlot) && m.dropIdle() {
		err = m.model.Eval(ctx, m.rows)
	}
	if err != nil {
		s.fed = min(s.fed, m.model.Len(slot))
		return err
	}
	s.fed += len(m.rows)
	return nil
}

// fit makes a row of the draft model one of the target: tokens that only the
// draft model has are left out, those that it does not have are banned.
func (m *Model) fit(row []float32) []float32 {
	switch {
	case m.padded != nil:
		copy(m.padded, row)
		return m.padded
	case m.options.Vocab > 0:
		return row[:m.options.Vocab]
	}
	return row
}

// dropIdle empties the sequences of texts that are over, and reports whether
// there was anything in them.
func (m *Model) dropIdle() bool {
	dropped := false
	for i := range m.slots {
		if !m.slots[i].live && m.model.Len(i) > 0 && m.model.Truncate(i, 0) == nil {
			dropped = true
		}
	}
	return dropped
}
