package speculative

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newController(t *testing.T, drafters int, o ControllerOptions) *Controller {
	t.Helper()
	c, err := NewController(drafters, o)
	require.NoError(t, err)
	return c
}

// noisy returns a machine with noise of 3%, 2% outliers, and times that grow by
// 15% over 256 tokens.
func noisy(m machine) machine {
	m.noise, m.spikes, m.deeper = .03, .02, .15
	return m
}

// simulate returns the tokens a millisecond, without noise, of texts on a fresh
// controller each, or after two others.
func simulate(t *testing.T, m machine, r regime, tokens int, before int) float64 {
	var all, ms float64
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newController(t, 1, ControllerOptions{})
		for range before {
			m.run(c, rng, r, 256)
		}
		o := m.run(c, rng, r, tokens)
		all += float64(o.tokens)
		ms += o.quietMS
	}
	return all / ms
}

// On texts of 256 tokens the controller is as good as the best fixed length but
// for a few per cent, although it begins knowing neither machine nor text.
func TestCloseToTheBestLength(t *testing.T) {
	f16, flat := noisy(machines[0]), noisy(machines[3])
	for _, c := range []struct {
		machine machine
		chance  float64
		length  int     // the best, by exact expectation
		share   float64 // of its throughput that is reached
	}{
		{f16, .5, 1, .95}, {f16, .6, 2, .92}, {f16, .7, 2, .93}, {f16, .8, 3, .92}, {f16, .9, 3, .92},
		{flat, .3, 1, .97}, {flat, .5, 2, .97}, {flat, .6, 3, .97}, {flat, .7, 4, .96}, {flat, .8, 6, .95},
		// Long drafts are worth so much that the first few rounds show.
		{f16, .95, 11, .90}, {flat, .9, 9, .90}, {flat, .95, 15, .88},
	} {
		t.Run(fmt.Sprintf("%s %v", c.machine.name, c.chance), func(t *testing.T) {
			best, length := c.machine.best(steady(c.chance), 16)
			assert.Equal(t, c.length, length)
			assert.Greater(t, simulate(t, c.machine, steady(c.chance), 256, 0)/best, c.share, "a first text")
			assert.Greater(t, simulate(t, c.machine, steady(c.chance), 256, 2)/best, c.share-.01, "a third one")
		})
	}
	t.Run("falling chances", func(t *testing.T) {
		r := steady(.9, .85, .6, .4, .2)
		best, length := f16.best(r, 16)
		assert.Equal(t, 3, length)
		assert.Greater(t, simulate(t, f16, r, 256, 0)/best, .95)
	})
}

// Where nothing pays, a text of 128 tokens takes at most two per cent longer
// than without drafts, on a machine not known before.
func TestNeverSlower(t *testing.T) {
	for _, m := range machines {
		for _, chance := range []float64{0, .1, .2, .3} {
			if best, _ := m.best(steady(chance), 16); best*m.rows(1) > 1.01 {
				continue
			}
			t.Run(fmt.Sprintf("%s %v", m.name, chance), func(t *testing.T) {
				m := noisy(m)
				assert.Greater(t, simulate(t, m, steady(chance), 128, 0)*m.rows(1), .98, "a first text")
				assert.Greater(t, simulate(t, m, steady(chance), 128, 2)*m.rows(1), .98, "a third one")
				assert.Greater(t, simulate(t, m, steady(chance), 1024, 0)*m.rows(1), .99, "a long one")
			})
		}
	}
}

// On a machine without noise no text, however its drafts fare, falls behind plain
// decoding by more than the allowance, a part of its time, and what the first
// measurements teach.
func TestRegretIsBounded(t *testing.T) {
	switching := func(_ float64, every int) regime {
		return func(generated, _ int) float64 { return float64(generated / every % 2) }
	}
	regimes := map[string]regime{
		"never": steady(0), "seldom": steady(.2), "half": steady(.5), "often": steady(.8),
		"first only": steady(1, 0), "first two": steady(1, 1, 0), "late": func(generated, _ int) float64 {
			if generated < 300 {
				return 0
			}
			return 1
		},
		"early": func(generated, _ int) float64 {
			if generated < 100 {
				return 1
			}
			return 0
		},
		"every 7": switching(0, 7), "every 20": switching(0, 20), "every 100": switching(0, 100),
	}
	for _, m := range machines {
		for name, r := range regimes {
			for _, tokens := range []int{1, 16, 64, 256, 1024} {
				for seed := range uint64(8) {
					c := newController(t, 1, ControllerOptions{})
					o := m.run(c, rand.New(rand.NewPCG(seed, 2)), r, tokens)
					bound := m.rows(1) * (float64(o.tokens)*(1+regret) + allowance + 1.5)
					require.LessOrEqual(t, o.quietMS, bound, "%s, %s, %d tokens: %v", m.name, name, tokens, o.lengths)
				}
			}
		}
	}
}

// A text whose drafts begin to stand is found out, and so is one whose drafts
// begin to fall. The drafter reads at no cost: for one that has a whole text to
// catch up on a trial would cost more than the account allows.
func TestChangesAreNoticed(t *testing.T) {
	m := noisy(machines[0])
	m.again = 0
	best, _ := m.best(steady(.9), 16)
	for seed := range uint64(20) {
		late := func(generated, _ int) float64 {
			if generated < 200 {
				return .05
			}
			return .9
		}
		c := newController(t, 1, ControllerOptions{})
		o := m.run(c, rand.New(rand.NewPCG(seed, 3)), late, 1200)
		require.Less(t, o.quietMS, 1.02*200*m.rows(1)+1000/best*1.25, "seed %d: %v", seed, o.lengths)

		early := func(generated, _ int) float64 { return late(399-generated, 0) }
		c = newController(t, 1, ControllerOptions{})
		o = m.run(c, rand.New(rand.NewPCG(seed, 4)), early, 400)
		require.Less(t, o.quietMS, 200/best*1.12+200*m.rows(1)*1.07, "seed %d: %v", seed, o.lengths)
	}
}

// Trials come after 2, 16, 32, 64, and then every 128 tokens, where the drafter reads
// at no cost.
func TestTrialsAreSpaced(t *testing.T) {
	m := machines[0]
	m.again = 0
	c := newController(t, 1, ControllerOptions{})
	o := m.run(c, rand.New(rand.NewPCG(1, 5)), steady(0), 2000)
	var gaps []int
	last := 0
	for i, n := range o.lengths {
		if n > 0 {
			gaps = append(gaps, i-last)
			last = i + 1
		}
	}
	assert.IsNonDecreasing(t, gaps[1:])
	assert.Subset(t, gaps, []int{2, 16, 32, 64})
	for _, g := range gaps[len(gaps)-10:] {
		assert.Equal(t, 128, g)
	}
}

func TestFixed(t *testing.T) {
	c := newController(t, 2, ControllerOptions{Fixed: true, Max: 3})
	assert.Equal(t, Plan{0, 3}, c.Plan(0, Batch{Texts: 1, Room: 9}, nil))
	assert.Equal(t, Plan{0, 2}, c.Plan(0, Batch{Texts: 1, Room: 2}, nil))
	assert.Equal(t, Plan{}, c.Plan(0, Batch{Texts: 1}, nil))
	assert.Equal(t, Plan{0, 1}, c.Plan(0, Batch{Texts: 1, Room: 9}, []Offer{{0, []float64{.1}}}))
	assert.Equal(t, Plan{1, 3}, c.Plan(0, Batch{Texts: 1, Room: 9}, []Offer{{Drafter: 0}}))
	assert.Equal(t, Plan{}, c.Plan(0, Batch{Texts: 1, Room: 9}, []Offer{{Drafter: 0}, {Drafter: 1}}))
}

// With a least length a draft has as many tokens or none is made.
func TestLeastLength(t *testing.T) {
	c := newController(t, 2, ControllerOptions{Fixed: true, Max: 5, Min: 3})
	assert.Equal(t, Plan{0, 5}, c.Plan(0, Batch{Texts: 1, Room: 9}, nil))
	assert.Equal(t, Plan{0, 3}, c.Plan(0, Batch{Texts: 1, Room: 3}, nil))
	assert.Equal(t, Plan{}, c.Plan(0, Batch{Texts: 1, Room: 2}, nil))
	assert.Equal(t, Plan{1, 5}, c.Plan(0, Batch{Texts: 1, Room: 9}, []Offer{{0, []float64{.9, .9}}}))

	// Halves pay best at 3 (see TestOffersAreCut), and at 4 more than nothing:
	// 1.94 tokens in 14 ms. One token of .2 pays as well, but two of .2 and .1 do
	// not: 1.22 tokens in 12 ms.
	offer := func(least int, confidence ...float64) int {
		c := timed(t, 1)
		c.options.Min = least
		return c.Plan(0, Batch{Texts: 1, Room: 16}, []Offer{{0, confidence}}).N
	}
	assert.Equal(t, 4, offer(4, .5, .5, .5, .5, .5, .5))
	assert.Equal(t, 0, offer(4, .5, .5, .5))
	assert.Equal(t, 1, offer(1, .2, .1))
	assert.Equal(t, 0, offer(2, .2, .1))
}

// timed returns a controller that has measured a target of 10 ms for a row and 1
// ms for each more, up to 17, and a drafter, if any, of 2 ms a token.
func timed(t *testing.T, drafters int) *Controller {
	c := newController(t, drafters, ControllerOptions{})
	for range 5 {
		for rows := 1; rows <= 17; rows++ {
			c.Evaluated(rows, time.Duration(9+rows)*time.Millisecond)
		}
	}
	return c
}

// With p for each draft, n drafts give p + p^2 + ... tokens more for n ms more,
// and the plain rate is a token in 10 ms. Worked by hand.
func TestOffersAreCut(t *testing.T) {
	repeat := func(p float64, n int) []float64 {
		var c []float64
		for range n {
			c = append(c, p)
		}
		return c
	}
	for name, c := range map[string]struct {
		confidence []float64
		room, want int
	}{
		"nothing offered": {nil, 9, 0},
		// 1.1 tokens in 11 ms are a token in 10 ms.
		"just not": {[]float64{.1}, 9, 0},
		// 1.2/11 of 1/10 is 1.09.
		"one":           {[]float64{.2}, 9, 1},
		"room":          {repeat(.9, 16), 5, 5},
		"none behind":   {[]float64{.9, .05, .9, .9}, 9, 1},
		"a gap is over": {[]float64{.9, .3, 1, 1}, 9, 4},
		// .5^3 is .125, worth 1.25 ms; .5^4 only .6 ms.
		"halves": {repeat(.5, 16), 16, 3},
	} {
		t.Run(name, func(t *testing.T) {
			n := timed(t, 1).Plan(0, Batch{Texts: 1, Room: c.room}, []Offer{{0, c.confidence}}).N
			assert.Equal(t, c.want, n)
		})
	}
}

// An offer that promises too much is not believed for long.
func TestOffersAreChecked(t *testing.T) {
	c := timed(t, 1)
	offers := []Offer{{0, []float64{.6, .6, .6, .6}}}
	drafts, last := 0, 0
	for i := range 400 {
		p := c.Plan(0, Batch{Texts: 1, Room: 16}, offers)
		if p.N > 0 {
			drafts++
			last = i
		}
		c.Evaluated(1+p.N, time.Duration(10+p.N)*time.Millisecond)
		c.Observe(Round{Asked: p.N, Drafted: p.N, Offered: p.N > 0})
	}
	assert.NotZero(t, drafts)
	// The account allows 2 steps of 10 ms, and .5% of 400: 40 ms. A draft takes 1
	// ms a token.
	assert.Less(t, drafts, 40)
	assert.NotZero(t, last)
}

// Of drafts of which a third stands of what was said, .3 is worth .1 only: 1.1
// tokens in 11 ms, which is nothing.
func TestOffersThatPromiseTooMuch(t *testing.T) {
	c := timed(t, 1)
	b := Batch{Texts: 1, Room: 16}
	modest := []Offer{{0, []float64{.3}}}
	assert.Equal(t, 1, c.Plan(0, b, modest).N)
	for range 200 {
		p := c.Plan(0, b, []Offer{{0, []float64{1, 1, 1}}})
		require.Equal(t, 3, p.N)
		c.Observe(Round{Asked: 3, Drafted: 3, Accepted: 1, Offered: true})
	}
	assert.Equal(t, 0, c.Plan(0, b, modest).N)
}

// For two texts, T(n) being 9 + n ms, g free drafts that stand with .8 each give
// 2*(1 + .8 + ... + .8^g) tokens in 9 + 2*(1+g) ms: most, .354 in a ms, for 4.
// That is also where the next one, .8^5 = .328 tokens for a ms, is worth less.
func TestTextsTogether(t *testing.T) {
	c := timed(t, 1)
	x := c.text(0)
	x.drafters[0].survival.all = tally{hits: 8e6, trials: 1e7}
	x.debt = -1
	c.drafters[0].costs = draftCosts{nn: 1e6}
	assert.Equal(t, Plan{0, 4}, c.Plan(0, Batch{Texts: 2, Rows: 1, Room: 16}, nil))
	// Alone, 1 + .8 + ... tokens in 10 + g ms are most, .247 in a ms, for 6.
	assert.Equal(t, Plan{0, 6}, c.Plan(0, Batch{Texts: 1, Room: 16}, nil))
}

// Two sizes measured, worked by hand.
func TestCosts(t *testing.T) {
	var c costs
	assert.Zero(t, c.at(3, 1))
	for range 3 {
		c.observe(2, 10)
		c.observe(6, 30)
	}
	for size, want := range map[int]float64{
		2: 10, 6: 30, 8: 32, // beyond, at 1 each
		4: 12, // the line says 20, going on from 2 says 12
		1: 9,  // below, less by the slope
	} {
		assert.InDelta(t, want, c.at(size, 1), 1e-9, "size %d", size)
	}
	assert.InDelta(t, 20, c.at(4, 8), 1e-9, "with a steeper slope the line is the lower one")
	assert.InDelta(t, 5, c.at(1, 100), 1e-9, "below, never less than in proportion")

	c.observe(4, 100)
	assert.InDelta(t, 18, c.at(4, 1), 1e-9, "one time is believed up to half more than foretold")
	c.observe(4, 14)
	assert.InDelta(t, 14, c.at(4, 1), 1e-9, "of two the less")
	c.observe(4, 16)
	assert.InDelta(t, 15, c.at(4, 1), 1e-9, "of three the mean without the outlier")

	// All slow down by a fifth, little by little; only one is measured, and the
	// others follow for the most part.
	for i := range 200 {
		c.observe(2, 10+2*float64(i)/200)
	}
	assert.InDelta(t, 12, c.at(2, 1), .2)
	assert.InDelta(t, 34.5, c.at(6, 1), 1.5)
}

// 2 ms a token and 1 ms for catching up are found again, with one outlier.
func TestDraftCosts(t *testing.T) {
	var c draftCosts
	assert.InDelta(t, 7.6, c.at(2, 1, 3.5), 7.6*.2, "a guess: 3.5 a token and .6 of one")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		n, behind := 1+rng.IntN(6), float64(rng.IntN(4))
		y := 2*float64(n) + behind
		if i == 150 {
			y *= 50
		}
		c.observe(n, behind, y, 3)
	}
	assert.InDelta(t, 2, c.at(1, 0, 3), .05)
	assert.InDelta(t, 13, c.at(6, 1, 3), .2)
}

// With a model that drafts well, the n-gram's offer must beat it.
func TestBetterDrafterDrafts(t *testing.T) {
	c := timed(t, 2)
	for range 100 { // the model's drafts stand with .8: 3 for 9 ms is its best
		c.Plan(0, Batch{Texts: 1, Room: 16}, []Offer{{Drafter: 0}})
		c.Observe(Round{Drafter: 1, Asked: 3, Drafted: 3, Accepted: 3, Draft: 6 * time.Millisecond})
		c.Observe(Round{Drafter: 1, Asked: 3, Drafted: 3, Accepted: 1, Draft: 6 * time.Millisecond})
	}
	b := Batch{Texts: 1, Room: 16}
	assert.Equal(t, 1, c.Plan(0, b, []Offer{{Drafter: 0}}).Drafter)
	assert.Equal(t, 1, c.Plan(0, b, []Offer{{0, []float64{.5, .5}}}).Drafter)
	assert.Equal(t, Plan{0, 6}, c.Plan(0, b, []Offer{{0, []float64{.95, .95, .95, .95, .95, .95}}}))
}

// A drafter that has nothing to give is left alone.
func TestSilentDrafterIsLeftAlone(t *testing.T) {
	c := timed(t, 1)
	asked := 0
	for range 1000 {
		p := c.Plan(0, Batch{Texts: 1, Room: 16}, nil)
		if p.N > 0 {
			asked++
		}
		c.Observe(Round{Asked: p.N, Draft: time.Millisecond})
	}
	assert.Positive(t, asked)
	assert.Less(t, asked, 15)
}

// In an evaluation of eight texts where each row more costs much, a draft must
// stand with a higher chance than alone.
func TestSharedEvaluationCountsItsRows(t *testing.T) {
	c := newController(t, 1, ControllerOptions{})
	for range 5 {
		c.Evaluated(1, 10*time.Millisecond)
		c.Evaluated(2, 11*time.Millisecond)
		c.Evaluated(8, 20*time.Millisecond)
		c.Evaluated(9, 22*time.Millisecond)
	}
	offer := []Offer{{0, []float64{.6}}}
	assert.Equal(t, 1, c.Plan(0, Batch{Texts: 1, Room: 4}, offer).N, "1.6 tokens in 11 ms")
	assert.Equal(t, 0, c.Plan(1, Batch{Texts: 8, Rows: 7, Room: 4}, offer).N, "8.6 tokens in 22 ms against 8 in 20")
	assert.Equal(t, 1, c.Plan(2, Batch{Texts: 8, Rows: 7, Room: 4}, []Offer{{0, []float64{1}}}).N, "9 tokens in 22 ms")
}

func TestControllerOptions(t *testing.T) {
	_, err := NewController(0, ControllerOptions{})
	assert.EqualError(t, err, "speculative: 0 drafters: there must be at least 1")
	for _, max := range []int{-1, 65} {
		_, err = NewController(1, ControllerOptions{Max: max})
		assert.EqualError(t, err, fmt.Sprintf("speculative: Max is %d: it must be in [1, 64], or 0 for 16", max))
	}
	for _, least := range []int{-1, 5} {
		_, err = NewController(1, ControllerOptions{Max: 4, Min: least})
		assert.EqualError(t, err, fmt.Sprintf("speculative: Min is %d: it must be in [0, 4], the largest being Max", least))
	}
	assert.Equal(t, 16, newController(t, 1, ControllerOptions{}).Max())
}

func TestBatchOfNothing(t *testing.T) {
	for _, b := range []Batch{{}, {Texts: 1, Rows: -1}} {
		assert.PanicsWithValue(t, "speculative: a Batch needs at least 1 text and 0 rows", func() {
			newController(t, 1, ControllerOptions{}).Plan(0, b, nil)
		})
	}
}

// Times that no clock should give do no harm.
func TestStrangeTimes(t *testing.T) {
	c := newController(t, 1, ControllerOptions{})
	for range 100 {
		c.Evaluated(0, time.Second)
		c.Evaluated(-3, time.Second)
		c.Evaluated(1, 0)
		c.Evaluated(1, -time.Second)
		p := c.Plan(0, Batch{Texts: 1, Room: 16}, nil)
		assert.Equal(t, Plan{}, p, "nothing is known")
		c.Observe(Round{})
	}
	c.Evaluated(1, time.Nanosecond)
	c.Evaluated(1<<40, time.Hour)
	for range 100 {
		p := c.Plan(0, Batch{Texts: 1, Room: 16}, nil)
		c.Observe(Round{Asked: p.N, Drafted: p.N, Draft: -time.Hour})
	}
}

func TestPlanDoesNotAllocate(t *testing.T) {
	c := timed(t, 2)
	offers := []Offer{{0, []float64{.9, .9}}}
	c.Plan(0, Batch{Texts: 1, Room: 16}, offers)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Plan(0, Batch{Texts: 1, Room: 16}, offers) }))
}
