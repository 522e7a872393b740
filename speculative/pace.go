package speculative

import "math"

// This file decides, while a draft is being made, how far it goes. A draft
// model knows how sure it is: of its tokens to which it gives 0.9 about as many
// stand, of those with 0.2 as few. A drafter that says so before each token
// ([Text.Weigh]) has longer drafts where the text is clear, and short ones or
// none where it is not.
//
// One more token costs what drafting it takes and what one more row of the
// evaluation does, and is worth the probability that it stands, and all before
// it. It is drafted where a token more, or several, are expected to be worth
// their cost at the rate of tokens that drafting has reached; and when it has
// been, and turns out doubtful, it is proposed only if it is worth its row. The
// token itself, as it was drawn, has no say in whether it is proposed, so that
// the law of the text stays under every rule.

// pace is a draft under way.
type pace struct {
	drafter  int
	longest  int
	rows     int     // of the evaluation without the draft
	rate     float64 // tokens a second that a token's cost is compared with
	budget   float64 // seconds that the draft may cost
	spent    float64 // and has cost
	survives float64 // probability that all proposed so far stand
	stand    float64 // and how many of them are expected to
	chance   float64 // of a token to stand that nothing is known of
	asked    int     // tokens weighed
	proposed int
	weights  [largestMax]float64 // of the tokens proposed: what the drafter said
	foretold [largestMax]float64 // and the chance to stand that follows from it
}

// begin starts the draft of a plan.
func (c *Controller) begin(t *textControl, plan Plan, rate, budget float64) {
	prior := c.drafters[plan.Drafter].survival.all.blend(firstChance, firstWeight)
	t.pace = pace{
		drafter: plan.Drafter, longest: plan.N, rows: t.batch.Rows + 1, rate: rate, budget: budget, survives: 1,
		chance: t.drafters[plan.Drafter].clarity.blend(prior, textWeight),
	}
	c.drafting = t
}

// weigh is [Text.Weigh] for the draft under way.
func (c *Controller) weigh(p float64) (propose, goOn bool) {
	t := c.drafting
	w := &t.pace
	if w.proposed == w.longest {
		return false, false
	}
	w.asked++
	token := c.draftTime(w.drafter, 1, 0)
	row := c.evaluation(w.rows+w.proposed+1) - c.evaluation(w.rows+w.proposed)
	own := &t.drafters[w.drafter]
	foretold := c.drafters[w.drafter].sureness.chance(p)
	chance := own.falls.correct(foretold)
	own.clarity.add(chance, clarityMemory)
	survives := w.survives * chance
	beyond := c.beyond(w, survives, w.proposed+1)
	w.spent += token
	if w.proposed >= c.options.Min && survives+beyond <= w.rate*(row+survives*c.draftTime(w.drafter, 0, 1)) {
		return false, false
	}
	w.spent += row
	w.weights[w.proposed], w.foretold[w.proposed] = p, foretold
	w.proposed++
	w.survives = survives
	w.stand += survives
	switch next := c.evaluation(w.rows+w.proposed+1) - c.evaluation(w.rows+w.proposed); {
	case w.proposed == w.longest:
		return true, false
	case w.proposed < c.options.Min:
		return true, true
	default:
		return true, beyond > 0 && w.spent+token+next <= w.budget
	}
}

// beyond returns what tokens behind the first n are worth at most, in tokens and
// less their cost, if those stand with a probability; 0 if they do not pay. A
// draft that stands in full leaves its last token to read in the next round:
// going on saves that where the draft falls behind it.
func (c *Controller) beyond(w *pace, survives float64, n int) float64 {
	most, stand, now := 0.0, 0.0, survives
	token, before, reading := c.draftTime(w.drafter, 1, 0), c.evaluation(w.rows+n), c.draftTime(w.drafter, 0, 1)
	for more := 1; n+more <= w.longest; more++ {
		survives *= w.chance
		stand += survives
		cost := float64(more)*token + c.evaluation(w.rows+n+more) - before - (now-survives)*reading
		most = max(most, stand-w.rate*cost)
	}
	return most
}

// weighed takes in how a draft went: how many of its tokens were evaluated, and
// how many of them stood.
func (c *Controller) weighed(t *textControl, drafted, accepted int, rows, behind float64) {
	w := &t.pace
	x, own := &c.drafters[w.drafter], &t.drafters[w.drafter]
	for i := range min(drafted, accepted+1, w.proposed) {
		x.sureness.count(w.weights[i], i < accepted)
		own.falls.count(w.foretold[i], i < accepted)
	}
	y := yield{1, w.stand, rows, float64(w.asked), behind}
	own.yield.count(y, yieldMemory)
	x.yield.count(y, yieldOfOthers)
}

// sureness says how often tokens stand by what the drafter says of them, in
// classes of a tenth. It begins with the square root of that: a draft made of the
// target's weights is right more often than it believes.
type sureness [10]tally

const (
	surenessWeight = 6 // trials that this first guess counts for
	surenessMemory = 200
	clarityMemory  = 60 // tokens weighed after which old ones begin to fade
)

func (s *sureness) class(p float64) *tally { return &s[max(0, min(9, int(10*p)))] }

// chance returns the probability that a token stands.
func (s *sureness) chance(p float64) float64 { return s.class(p).blend(math.Sqrt(p), surenessWeight) }

func (s *sureness) count(p float64, stood bool) { s.class(p).count(stood, surenessMemory) }

// falls compare how many tokens of a text fell with how many were foretold to: a
// text that repeats its prompt, say, is drafted right where the draft model is of
// two minds.
type falls struct{ foretold, seen float64 }

const (
	fallsWeight = 2    // falls that count for as many as foretold
	fallsFade   = 0.98 // of what is known, each token
)

// correct returns the chance to stand in this text of a token with a chance.
func (f *falls) correct(chance float64) float64 {
	return max(0, 1-(1-chance)*(f.seen+fallsWeight)/(f.foretold+fallsWeight))
}

func (f *falls) count(chance float64, stood bool) {
	f.foretold, f.seen = fallsFade*f.foretold+1-chance, fallsFade*f.seen
	if !stood {
		f.seen++
	}
}

// A yield is what drafts came to. The tokens are those that were expected to
// stand: that has less of chance in it than those that did, and what is expected
// follows what happens by sureness.
type yield struct {
	rounds float64
	stand  float64 // tokens
	rows   float64 // what evaluating them took, in plain steps
	asked  float64 // tokens weighed
	behind float64 // what there was to catch up on
}

const (
	yieldWeight   = 4  // rounds that what lengths foretell counts for, against other texts
	yieldOfText   = 6  // and other texts against this one
	yieldMemory   = 32 // rounds after which old ones begin to fade
	yieldOfOthers = 256
)

func (y yield) times(x float64) yield {
	return yield{x * y.rounds, x * y.stand, x * y.rows, x * y.asked, x * y.behind}
}

func (y yield) plus(o yield) yield {
	return yield{y.rounds + o.rounds, y.stand + o.stand, y.rows + o.rows, y.asked + o.asked, y.behind + o.behind}
}

// count takes in a round; those that count add up to at most memory.
func (y *yield) count(round yield, memory float64) {
	if y.rounds >= memory {
		*y = y.times(1 - 1/memory)
	}
	*y = y.plus(round)
}

// blend returns an average round, with a prior, one as well, of a weight.
func (y yield) blend(prior yield, weight float64) yield {
	all := y.plus(prior.times(weight))
	return all.times(1 / all.rounds)
}
