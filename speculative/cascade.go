package speculative

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// An Estimator is a [Drafter] that drafts at next to no cost and says how likely
// its drafts are to stand. Its proposals are certain: the controller cuts drafts
// that are made already, and to cut one by what was drawn would change the law of
// the text under [Block] and [Token]. They are no trees.
type Estimator interface {
	Drafter
	// Confidence returns for each token of the last draft the estimated
	// probability that it stands if all before it do. It is valid until the
	// next call of Draft.
	Confidence() []float64
}

// A Cascade drafts with several drafters, the first that has something to
// propose with ControllerOptions.Fixed, else the one that the controller
// expects most of. Estimators are asked in each round; of the others only the
// one that is chosen. One goroutine at a time may use it.
type Cascade struct {
	drafters   []Drafter
	estimators []Estimator // by drafter, nil for the others
	controller *Controller
	failed     []map[int]bool // by drafter: the slots of texts that it failed for
	offers     []Offer        // scratch
	drafts     []Draft
	now        func() time.Time
	weigh      func(p float64) (propose, goOn bool)
}

// NewCascade returns a cascade and its controller, for at least one drafter.
// The numbers by which a [Round] and [Stats] know the drafters are their places
// here.
func NewCascade(o ControllerOptions, drafters ...Drafter) (*Cascade, error) {
	for i, d := range drafters {
		if d == nil {
			return nil, fmt.Errorf("speculative: drafter %d is nil", i)
		}
	}
	controller, err := NewController(len(drafters), o)
	if err != nil {
		return nil, err
	}
	c := &Cascade{
		drafters:   drafters,
		estimators: make([]Estimator, len(drafters)),
		controller: controller,
		failed:     make([]map[int]bool, len(drafters)),
		drafts:     make([]Draft, len(drafters)),
		now:        time.Now,
		weigh:      controller.weigh,
	}
	for i, d := range drafters {
		c.estimators[i], _ = d.(Estimator)
		c.failed[i] = map[int]bool{}
	}
	return c, nil
}

// Controller returns the controller, which hears of evaluations and rounds.
func (c *Cascade) Controller() *Controller { return c.controller }

// Draft drafts for the next round of a text. The loop completes the round and
// hands it to [Controller.Observe], also where the draft is empty. An error is
// that of a drafter, which is not asked again for this text; the draft is then
// empty, and the round stands.
func (c *Cascade) Draft(ctx context.Context, t Text, b Batch) (Draft, Round, error) {
	start := c.now()
	round := Round{Slot: t.Slot}
	draft, err := c.draft(ctx, t, b, &round)
	round.Drafted = len(draft.Tokens)
	if draft.Parents != nil {
		round.Depth = draft.depth()
	}
	round.Draft = c.now().Sub(start)
	return draft, round, err
}

func (c *Cascade) draft(ctx context.Context, t Text, b Batch, round *Round) (Draft, error) {
	c.offers = c.offers[:0]
	longest := min(c.controller.Max(), b.Room)
	for i, e := range c.estimators {
		switch {
		case c.failed[i][t.Slot]:
			c.offers = append(c.offers, Offer{Drafter: i})
		case e != nil && longest > 0:
			draft, err := e.Draft(ctx, t, longest)
			if err != nil {
				return Draft{}, c.fail(i, t.Slot, err)
			}
			c.drafts[i] = draft
			c.offers = append(c.offers, Offer{i, e.Confidence()[:len(draft.Tokens)]})
		}
	}
	plan := c.controller.Plan(t.Slot, b, c.offers)
	round.Drafter, round.Asked = plan.Drafter, plan.N
	if plan.N == 0 {
		return Draft{}, nil
	}
	if c.estimators[plan.Drafter] != nil {
		round.Offered = true
		return c.drafts[plan.Drafter].first(plan.N), nil
	}
	if t.Weigh = nil; !c.controller.options.Fixed {
		t.Weigh = c.weigh
	}
	draft, err := c.drafters[plan.Drafter].Draft(ctx, t, plan.N)
	if err == nil {
		draft, err = draft.fit(plan.N, t.Branches)
	}
	if err != nil {
		return Draft{}, c.fail(plan.Drafter, t.Slot, err)
	}
	return draft, nil
}

// Read lets the drafters that are Readers read a text, so that the time for its
// prompt is not part of its first draft.
func (c *Cascade) Read(ctx context.Context, t Text) error {
	var failed error
	for i, d := range c.drafters {
		if r, ok := d.(Reader); ok {
			if err := r.Read(ctx, t); err != nil {
				failed = fmt.Errorf("speculative: drafter %d: %w", i, err)
			}
		}
	}
	return failed
}

// fail notes that a drafter is not to be asked again for a text.
func (c *Cascade) fail(drafter, slot int, err error) error {
	c.failed[drafter][slot] = true
	return fmt.Errorf("speculative: drafter %d: %w", drafter, err)
}

// Learns reports whether a drafter learns from logits, so that calling Learn is
// of use.
func (c *Cascade) Learns() bool {
	return slices.ContainsFunc(c.drafters, func(d Drafter) bool { _, ok := d.(Learner); return ok })
}

// Learn hands a row of logits to the drafters that learn from them; see
// [Learner].
func (c *Cascade) Learn(slot int, context []int32, logits []float32) {
	for _, d := range c.drafters {
		if l, ok := d.(Learner); ok {
			l.Learn(slot, context, logits)
		}
	}
}

// End tells all drafters and the controller that the text in a slot is over.
func (c *Cascade) End(slot int) {
	for i, d := range c.drafters {
		d.End(slot)
		delete(c.failed[i], slot)
	}
	c.controller.End(slot)
}
