package speculative

// A choice is what a drafter has to propose for a round, by length.
type choice struct {
	offered bool // it is an offer
	longest int
	stand   []float64 // drafts expected to stand
	price   []float64 // seconds that drafting and verifying them takes

	// Of a draft that is weighed as it is made the length is open: drafts
	// expected to stand, and seconds.
	open        bool
	yield, cost float64
}

// appraise fills in what a drafter has to propose where a plain round takes step
// seconds.
func (c *Controller) appraise(x *choice, t *textControl, d int, offers []Offer, step float64) {
	o := find(offers, d)
	x.offered, x.longest = o != nil, c.options.Max
	if !x.offered {
		t.drafters[d].survival.sums(x.stand, &c.drafters[d].survival)
	} else {
		x.longest = min(x.longest, len(o.Confidence))
		survives := t.drafters[d].trust.factor()
		for g := 1; g <= x.longest; g++ {
			survives = min(1, survives*o.Confidence[g-1])
			x.stand[g] = x.stand[g-1] + survives
		}
	}
	for g := 1; g <= x.longest; g++ {
		x.price[g] = max(0, c.evaluation(t.batch.Rows+1+g)-step)
		if !x.offered {
			x.price[g] += c.draftTime(d, g, x.stand[g]-x.stand[g-1])
		}
	}
	if x.open = !x.offered && c.drafters[d].weighs; x.open {
		c.open(x, t, d, step)
	}
}

// open fills in what drafts come to that are weighed: what they came to, and
// before that what the best fixed length would.
func (c *Controller) open(x *choice, t *textControl, d int, step float64) {
	best := 1
	for g := 2; g <= x.longest; g++ {
		if (1+x.stand[g])*(step+x.price[best]) > (1+x.stand[best])*(step+x.price[g]) {
			best = g
		}
	}
	y := yield{1, x.stand[best], max(0, c.evaluation(t.batch.Rows+1+best)-step) / step, float64(best), x.stand[best] - x.stand[best-1]}
	y = t.drafters[d].yield.blend(c.drafters[d].yield.blend(y, yieldWeight), yieldOfText)
	x.yield = y.stand
	x.cost = y.rows*step + y.asked*c.draftTime(d, 1, 0) + c.draftTime(d, 0, y.behind)
}

// throughput estimates the tokens a second if all texts draft so many.
func (c *Controller) throughput(x *choice, d, g, texts int) float64 {
	n := float64(texts)
	return n * (1 + x.stand[g]) / (c.evaluation(texts*(1+g)) + n*c.draftTime(d, g, x.stand[g]-x.stand[g-1]))
}
