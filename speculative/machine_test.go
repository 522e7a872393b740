package speculative

import (
	"math"
	"math/rand/v2"
	"time"
)

// A machine stands for a target and a drafter whose times and acceptance are
// written down. It has noise: most times within a few per cent, a few much
// longer, and all of them grow with the text.
type machine struct {
	name   string
	target map[int]float64 // milliseconds by rows, at depth 0
	perTok float64         // of a drafted token
	again  float64         // of the drafter's first token after a full acceptance, beyond that
	noise  float64         // standard deviation of the logarithm
	spikes float64         // share of times that are three times as long
	deeper float64         // growth over 256 tokens
}

// The tables are those of SmolLM2-135M on two cores, with a Q4_0 draft.
var machines = []machine{
	{name: "F16", target: map[int]float64{1: 18.3, 2: 19.9, 3: 21.2, 4: 22.7, 5: 32.6, 6: 36.1, 8: 39.2, 12: 40.8, 16: 50.9}, perTok: 4.2, again: 3.3},
	{name: "Q8_0", target: map[int]float64{1: 6.9, 2: 8.2, 3: 8.6, 4: 8.6, 5: 9.3, 6: 9.7, 8: 11.0, 12: 12.4, 16: 12.4}, perTok: 3.6, again: 2.0},
	{name: "Q4_1", target: map[int]float64{1: 4.2, 2: 7.1, 3: 7.9, 4: 8.5, 5: 9.3, 6: 9.7, 8: 10.8, 12: 11.8, 16: 12.3}, perTok: 3.6, again: 2.0},
	{name: "flat", target: map[int]float64{1: 20, 2: 20.2, 4: 20.4, 8: 20.8, 16: 22, 32: 24}, perTok: 2, again: .2},
}

// rows returns the time of an evaluation without noise, at depth 0.
func (m *machine) rows(n int) float64 {
	if v, ok := m.target[n]; ok {
		return v
	}
	below, above := n, n
	for below > 0 && m.target[below] == 0 {
		below--
	}
	for above < 1000 && m.target[above] == 0 {
		above++
	}
	a := m.target[below]
	if above == 1000 {
		return a + float64(n-below)*(a-m.target[1])/float64(below-1)
	}
	return a + (m.target[above]-a)*float64(n-below)/float64(above-below)
}

// drafting returns the time of n drafted tokens by a drafter that has so many
// tokens of the text to read: what it takes more to read 8 and 32 at once is 2
// and 6 times what it takes to read 2.
func (m *machine) drafting(n, lag int) float64 {
	t := float64(n) * m.perTok
	switch {
	case lag >= 8:
		t += m.again * (2 + float64(lag-8)/6)
	case lag >= 2:
		t += m.again * (1 + float64(lag-2)/6)
	}
	return t
}

// spoil puts noise on a time.
func (m *machine) spoil(rng *rand.Rand, ms float64, depth int) float64 {
	ms *= 1 + m.deeper*float64(depth)/256
	ms *= math.Exp(m.noise * rng.NormFloat64())
	if rng.Float64() < m.spikes {
		ms *= 3
	}
	return ms
}

// A regime gives the chance of the draft at a position, the first being 0, to
// stand if those before it do, by the tokens generated so far.
type regime func(generated, position int) float64

func steady(p ...float64) regime {
	return func(_, position int) float64 { return p[min(position, len(p)-1)] }
}

// best returns the highest throughput, in tokens a millisecond and without
// noise, of all fixed lengths up to longest, with the length that has it. It is
// exact for a steady regime: the states are whether the last round was accepted
// in full.
func (m *machine) best(r regime, longest int) (throughput float64, length int) {
	throughput = 1 / m.rows(1)
	for n := 1; n <= longest; n++ {
		full, tokens := 1.0, 1.0
		for i := range n {
			full *= r(0, i)
			tokens += full
		}
		ms := m.rows(1+n) + m.drafting(n, 1) + full*m.again
		if s := tokens / ms; s > throughput {
			throughput, length = s, n
		}
	}
	return throughput, length
}

// outcome is what a simulated text took.
type outcome struct {
	tokens  int
	ms      float64 // with noise
	quietMS float64 // without, at depth 0
	lengths []int   // of the drafts
}

// run generates a text of at least so many tokens in a slot.
func (m *machine) run(c *Controller, rng *rand.Rand, r regime, tokens int) outcome {
	return m.write(c, rng, tokens, func(generated, n int) (drafted, steps, accepted int) {
		for accepted < n && rng.Float64() < r(generated+accepted, accepted) {
			accepted++
		}
		return n, n, accepted
	})
}

// runWeighed does so with a drafter that weighs. chance gives the probability of
// a token to stand; the drafter says that its odds are so many times as high.
func (m *machine) runWeighed(c *Controller, rng *rand.Rand, chance func() float64, odds float64, tokens int) outcome {
	return m.write(c, rng, tokens, func(_, n int) (drafted, steps, accepted int) {
		stands := true
		for more := true; more && drafted < n; {
			p := chance()
			var propose bool
			propose, more = c.weigh(p * odds / (1 - p + p*odds))
			steps++
			if !propose {
				break
			}
			drafted++
			if stands = stands && rng.Float64() < p; stands {
				accepted++
			}
		}
		return drafted, steps, accepted
	})
}

// write generates a text. draft says of a draft of n tokens at most how many it
// has, how many steps of the drafter it took, and how many of them stand.
func (m *machine) write(c *Controller, rng *rand.Rand, tokens int, draft func(generated, n int) (drafted, steps, accepted int)) outcome {
	var o outcome
	lag := 1
	for o.tokens < tokens {
		plan := c.Plan(0, Batch{Texts: 1, Room: min(64, tokens-o.tokens-1)}, nil)
		var drafted, steps, accepted int
		drafting := 0.0
		if plan.N > 0 {
			drafted, steps, accepted = draft(o.tokens, plan.N)
			drafting = m.spoil(rng, m.drafting(steps, lag), o.tokens)
			o.quietMS += m.drafting(steps, lag)
		}
		verify := m.spoil(rng, m.rows(1+drafted), o.tokens)
		o.quietMS += m.rows(1 + drafted)
		o.ms += drafting + verify
		o.tokens += 1 + accepted
		o.lengths = append(o.lengths, drafted)
		c.Evaluated(1+drafted, ms(verify))
		c.Observe(Round{Asked: plan.N, Drafted: drafted, Accepted: accepted, Draft: ms(drafting), Verify: ms(verify)})
		switch {
		case plan.N == 0:
			lag++
		case accepted < steps:
			lag = 1
		default: // the last draft was not read
			lag = 2
		}
	}
	c.End(0)
	return o
}

func ms(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
