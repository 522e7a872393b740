package speculative

import (
	"fmt"
	"time"
)

// This file decides how much is drafted. It holds no clock and starts nothing:
// durations are handed in, and the same calls give the same plans.
//
// # The loop's part
//
// Before a round of a text, once it is known which texts share the evaluation:
//
//	draft, round, err := cascade.Draft(ctx, text, speculative.Batch{Texts: 3, Rows: 5, Room: 12})
//
// Texts counts the texts that get a round in the evaluation, this one included.
// Rows are the rows of the others as planned so far: their last tokens, their
// drafts, pieces of prompts. Room is what batch, context and budget leave for
// drafts. A draft of no tokens is a plain round. After the evaluation, once for
// all texts and before their rounds:
//
//	controller.Evaluated(rows, took)
//
// and for each text, when it is known how many drafts stood:
//
//	round.Accepted, round.Verify, round.Sampling, round.Rest = ...
//	stats.Count(controller.Observe(round))
//
// Evaluations with pieces of prompts need not be told: their times say little
// about rounds. Cascade.End follows the text's end.
//
// If cascade.Learns(), cascade.Learn hands over the logits of each row.
//
// # What it decides
//
// A round with g drafts gives 1 + S(g) tokens, S(g) being the sum of the
// probabilities that the first 1, 2, ... g drafts stand, and takes T(1+g) + D(g).
// Throughput in the long run is largest where each round makes
//
//	S(g) - L * (T(1+g) - T(1) + D(g))
//
// largest, L being the largest throughput itself (Dinkelbach's rule), which
// here is found among the estimates for all lengths. All lengths are compared,
// not one more token at a time: T has steps (between 4 and 5 rows, say), behind
// which it may pay to go on. In an evaluation shared by several texts T counts
// from the rows that are there anyway, and L is the throughput of all.
//
// T and D are measured (costs), S per text and position (survival); a drafter
// that is an Estimator brings its own S for each draft. A drafter that asks
// before each token (Text.Weigh) is given no length: it is told when to stop
// (pace), and its S and D are those of its drafts so far.
//
// # Never slower
//
// A round is drafted where the estimate says at least 1.02 times plain. Where
// none does, rounds are plain, but for one trial after 2, 16, 32, 64, and then every
// 128 tokens, beginning anew when a trial succeeds. While a text is ahead of
// plain decoding, drafting goes on down to an estimate of 0.96, so that a little
// bad luck does not end it. Estimators need no trials: they know without drafting.
//
// Above all stands an account of each text: a draft is made only if its whole
// cost, should nothing of it stand, leaves the text behind plain decoding by no
// more than half a per cent of its time so far and four plain steps, two where the
// draft is a trial. A text whose drafts are expected to pay is so not given up after
// a bad start, and one where nothing pays loses no more than trials cost.

// ControllerOptions are the settings of a [Controller]. The zero value means
// the defaults.
type ControllerOptions struct {
	// Max is the length of a draft at most: 16 by default, up to 64.
	Max int
	// Min is the least number of tokens that a draft is planned with; 0 or 1 is
	// any. A drafter that comes to the end of its own gives fewer.
	Min int
	// Fixed drafts Max tokens in each round, as far as there is room, from the
	// first drafter that has any to propose.
	Fixed bool
}

const (
	defaultMax = 16
	largestMax = 64

	pays       = 1.02 // estimated speed-up from which drafting is worth it
	mayPay     = 0.96 // and while the text is ahead of plain decoding by drafting
	firstTrial = 2    // tokens without drafts before the first trial in a text
	doubtful   = 1.3  // up to this the plain step must be known well
	nextTrial  = 16   // and before the second; then twice as many each time
	lastTrial  = 128

	allowance    = 2.0   // plain steps that a text may fall behind by trials,
	confidence   = 4.0   // by drafts that are expected to pay,
	regret       = 0.005 // and part of its time by either
	readingAhead = 0.25  // of what a drafter has to read must be left of both
	credit       = 8.0   // plain steps gained that are remembered, to be spent
	rowGrowth    = 0.12  // T of one more row beyond those measured, in T(1)
	growthWeight = 3.0   // rows that this guess counts for
	draftShare   = 0.25  // T of one drafted token before any was measured, in T(1)
	trustScale   = 4.0   // drafts that an Estimator is believed for a start
	trustFade    = 0.98  // of what is known of it, each round
)

// A Batch describes the evaluation that a round will be part of.
type Batch struct {
	Texts int // texts that get a round in it, this one included: 1 or more
	Rows  int // rows in it besides those of this text
	Room  int // drafts that the text may have, 0 for none
}

// An Offer is a draft that is there already, with the probability of each token
// to stand if all before it do.
type Offer struct {
	Drafter    int
	Confidence []float64
}

// A Plan says what to draft: at most N tokens from a drafter. N is 0 for a
// plain round.
type Plan struct{ Drafter, N int }

// A Round says how a round went.
type Round struct {
	Slot     int
	Drafter  int
	Asked    int  // tokens that the drafter was asked for, 0 if none was
	Drafted  int  // tokens evaluated, of those it gave
	Depth    int  // in a tree, how many of them follow one another at most; 0 if all do
	Accepted int  // of them, those that stood
	Offered  bool // the draft was an [Offer]

	Draft    time.Duration // what the draft took, plain rounds included
	Verify   time.Duration // the text's share of the evaluation
	Sampling time.Duration // choosing the tokens
	Rest     time.Duration

	// Plain is the estimated time that as many tokens take without drafts.
	// Observe says it.
	Plain time.Duration
}

// depth returns how many positions of the text the draft covers.
func (r Round) depth() int {
	if r.Depth > 0 {
		return r.Depth
	}
	return r.Drafted
}

// A Controller decides for each round of each text which drafter drafts how
// many tokens. One goroutine at a time may use it. Texts go by slot, as in
// [Text]; a text begins with the first call for its slot after End.
type Controller struct {
	options  ControllerOptions
	target   costs // of an evaluation, by rows
	drafters []drafterControl
	texts    []*textControl
	drafting *textControl // whose draft is under way

	choices []choice // scratch, by drafter
}

// drafterControl is what is known of a drafter, from all texts so far.
type drafterControl struct {
	costs    draftCosts
	survival survival
	weighs   bool // whether its last draft was weighed; see pace
	sureness sureness
	yield    yield
}

// textControl is what is known of a text.
type textControl struct {
	drafters []drafterOfText
	debt     float64 // seconds behind plain decoding, less than 0 if before
	plain    float64 // seconds that plain decoding would have taken
	since    int     // rounds since the last plain one
	quiet    int     // tokens since the last draft
	gap      int     // and how many before a trial
	speed    float64 // estimated of the last draft, relative to plain
	trial    bool    // the round under way is one
	batch    Batch
	expected float64 // drafts to stand of the offer taken
	pace     pace    // of the draft under way
}

// drafterOfText is what is known of a drafter from one text.
type drafterOfText struct {
	survival survival
	trust    reliance
	lag      int // tokens of the text that it has not read
	yield    yield
	clarity  tally // chances to stand of tokens weighed
	falls    falls
}

// reliance compares what an Estimator said would stand with what stood.
type reliance struct{ expected, stood float64 }

func (r reliance) factor() float64 { return (r.stood + trustScale) / (r.expected + trustScale) }

// NewController returns a controller for so many drafters.
func NewController(drafters int, o ControllerOptions) (*Controller, error) {
	if drafters < 1 {
		return nil, fmt.Errorf("speculative: %d drafters: there must be at least 1", drafters)
	}
	if o.Max < 0 || o.Max > largestMax {
		return nil, fmt.Errorf("speculative: Max is %d: it must be in [1, %d], or 0 for %d", o.Max, largestMax, defaultMax)
	}
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.Min < 0 || o.Min > o.Max {
		return nil, fmt.Errorf("speculative: Min is %d: it must be in [0, %d], the largest being Max", o.Min, o.Max)
	}
	choices := make([]choice, drafters)
	for i := range choices {
		choices[i].stand = make([]float64, o.Max+1)
		choices[i].price = make([]float64, o.Max+1)
	}
	return &Controller{
		options:  o,
		drafters: make([]drafterControl, drafters),
		choices:  choices,
	}, nil
}

// Max returns the length of a draft at most.
func (c *Controller) Max() int { return c.options.Max }

func (c *Controller) text(slot int) *textControl {
	for slot >= len(c.texts) {
		c.texts = append(c.texts, nil)
	}
	if c.texts[slot] == nil {
		c.texts[slot] = &textControl{drafters: make([]drafterOfText, len(c.drafters)), gap: firstTrial}
	}
	return c.texts[slot]
}

// Plan decides the next round of a text. The offers are the drafts of those
// drafters that estimate for themselves, none for one that has nothing to
// propose; all others are drafters that draft when asked. It panics if the batch
// counts no texts or less than no rows.
func (c *Controller) Plan(slot int, b Batch, offers []Offer) Plan {
	if b.Texts < 1 || b.Rows < 0 {
		panic("speculative: a Batch needs at least 1 text and 0 rows")
	}
	t := c.text(slot)
	t.batch, t.trial, t.expected = b, false, 0
	longest := min(c.options.Max, b.Room)
	switch {
	case longest < max(1, c.options.Min):
		return Plan{}
	case c.options.Fixed:
		return c.first(longest, offers)
	case !c.target.known() || c.baselineDue(t):
		return Plan{}
	}

	shortest := max(1, c.options.Min)
	longest = min(longest, max(shortest, 2*c.target.most()-b.Rows-1))
	step := c.evaluation(b.Rows + 1)
	account := regret*t.plain - t.debt
	afford := account + allowance*step/float64(b.Texts)
	trusted := account + confidence*step/float64(b.Texts)
	rate := float64(b.Texts) / step
	for d := range c.choices {
		x := &c.choices[d]
		c.appraise(x, t, d, offers, step)
		switch {
		case x.offered:
		case x.open:
			n := float64(b.Texts)
			rate = max(rate, n*(1+x.yield)/(step+n*x.cost))
		default:
			for g := shortest; g <= longest; g++ {
				if x.price[g] <= trusted {
					rate = max(rate, c.throughput(x, d, g, b.Texts))
				}
			}
		}
	}

	var plan, trial Plan
	var best, fastest float64
	for d := range c.choices {
		x := &c.choices[d]
		threshold := pays
		if t.debt < 0 && !x.offered {
			threshold = mayPay
		}
		// What has piled up for the drafter to read is paid once. It is charged in
		// full when it is known; all of it asked for before, no trial came any more.
		reading, most := 0.0, afford
		if !x.offered {
			reading = readingAhead * c.draftTime(d, 0, max(0, catchingUp(t.drafters[d].lag)-1))
			most = trusted
		}
		for g := shortest; g <= min(longest, x.longest); g++ {
			cost, stand, price, n := x.price[g]+reading, x.stand[g], x.price[g], g
			if x.open {
				stand, price, n = x.yield, x.cost, longest
			}
			speed := (1 + stand/float64(b.Texts)) * step / (step + price)
			if value := stand - rate*price; speed >= threshold && cost <= most && (plan.N == 0 || value > best) {
				plan, best, t.speed = Plan{d, n}, value, speed
			}
			if !x.offered && cost <= afford && speed > fastest {
				trial, fastest = Plan{d, n}, speed
			}
			if x.open {
				break
			}
		}
	}
	if plan.N == 0 && trial.N > 0 && t.quiet >= t.gap {
		t.trial = true
		plan, trusted = trial, afford
	}
	switch x := &c.choices[plan.Drafter]; {
	case plan.N == 0:
	case x.offered:
		t.expected = x.stand[plan.N] / t.drafters[plan.Drafter].trust.factor()
	default:
		c.begin(t, plan, rate, trusted)
	}
	return plan
}

// first is the plan without estimates.
func (c *Controller) first(longest int, offers []Offer) Plan {
	for d := range c.drafters {
		n := longest
		if o := find(offers, d); o != nil {
			n = min(n, len(o.Confidence))
		}
		if n >= max(1, c.options.Min) {
			return Plan{d, n}
		}
	}
	return Plan{}
}

func find(offers []Offer, drafter int) *Offer {
	for i := range offers {
		if offers[i].Drafter == drafter {
			return &offers[i]
		}
	}
	return nil
}

// evaluation estimates the seconds that the target takes for so many rows.
func (c *Controller) evaluation(rows int) float64 {
	return c.target.at(rows, c.growth())
}

// growth estimates the seconds that one row adds beyond the rows measured: what
// rows have added so far, by the size at which that was least, against a first
// guess. An outlier is never the least.
func (c *Controller) growth() float64 {
	one := c.target.at(1, 0)
	least := rowGrowth * one
	for size := 2; size <= c.target.most(); size++ {
		if c.target.count(size) > 0 {
			added := max(0, c.target.seen(size)-one)
			least = min(least, (growthWeight*rowGrowth*one+added)/(growthWeight+float64(size-1)))
		}
	}
	return least
}

// baselineDue reports whether the plain step of a text alone is to be measured:
// all estimates hang on it. After three measurements it is watched by the level
// of the others, and seldom measured again.
func (c *Controller) baselineDue(t *textControl) bool {
	if t.batch.Texts > 1 {
		return false
	}
	switch c.target.count(t.batch.Rows + 1) {
	case 0:
		return true
	case 1, 2:
		return t.since >= 6 && t.speed < doubtful
	}
	return t.since >= 256
}

// draftTime estimates the seconds that a drafter takes for n tokens, with the
// probability that it has something to catch up on.
func (c *Controller) draftTime(d, n int, behind float64) float64 {
	return c.drafters[d].costs.at(n, behind, draftShare*c.target.at(1, 0))
}

// Evaluated takes in how long an evaluation of the target took that held
// nothing but rounds, drafts included.
func (c *Controller) Evaluated(rows int, took time.Duration) {
	c.target.observe(rows, took.Seconds())
}

// Observe takes in how a round went, and returns it with Plain.
func (c *Controller) Observe(r Round) Round {
	t := c.text(r.Slot)
	step := c.evaluation(t.batch.Rows + 1)
	token := step / float64(max(1, t.batch.Texts))
	r.Plain = time.Duration(float64(r.Accepted+1) * token * float64(time.Second))
	t.plain += float64(r.Accepted+1) * token

	t.since++
	if r.Drafted == 0 {
		t.since = 0
	}
	t.quiet++
	if r.Asked > 0 {
		t.quiet = 0
	}
	for d := range t.drafters {
		own := &t.drafters[d]
		own.trust.expected *= trustFade
		own.trust.stood *= trustFade
		own.lag += r.Accepted + 1
	}
	if r.Asked == 0 {
		return r
	}
	own := &t.drafters[r.Drafter]
	price := max(0, c.evaluation(t.batch.Rows+1+r.Drafted)-step)
	if r.Offered {
		own.trust.expected += t.expected
		own.trust.stood += float64(r.Accepted)
	} else {
		behind := catchingUp(own.lag - r.Accepted - 1) // what it was before the round
		if t.pace.asked > 0 {
			c.weighed(t, r.Drafted, r.Accepted, price/step, behind)
		}
		price += c.learn(t, r, behind)
		own.lag = 1
		if r.Accepted == r.Drafted && t.pace.asked <= r.Drafted { // the last draft was not read
			own.lag = 2
		}
	}
	t.debt = max(t.debt+price-float64(r.Accepted)*token, -credit*token)
	return r
}

// learn takes in a round whose draft was asked for, and returns what the draft
// cost. A drafter that gave nothing counts as one that was wrong.
func (c *Controller) learn(t *textControl, r Round, behind float64) float64 {
	d := r.Drafter
	x, own := &c.drafters[d], &t.drafters[d]
	x.weighs = t.pace.asked > 0
	if t.trial {
		own.survival.fade()
		own.yield = own.yield.times(.5)
	}
	if depth := max(r.depth(), 1-t.pace.asked); depth > 0 {
		own.survival.observe(depth, r.Accepted, survivalMemory)
		x.survival.observe(depth, r.Accepted, survivalOfOthers)
	}
	switch {
	case r.Accepted > 0:
		t.gap = firstTrial
	case t.trial:
		t.gap = min(max(2*t.gap, nextTrial), lastTrial)
	}
	n := max(r.Drafted, t.pace.asked)
	if n == 0 {
		return r.Draft.Seconds()
	}
	x.costs.observe(n, behind, r.Draft.Seconds(), draftShare*c.target.at(1, 0))
	return c.draftTime(d, n, behind)
}

// End ends the text in a slot.
func (c *Controller) End(slot int) {
	if slot < len(c.texts) {
		c.texts[slot] = nil
	}
}
