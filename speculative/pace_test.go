package speculative

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// paced returns the controller of timed, whose drafter takes 2 ms a token, at
// the beginning of a draft in a text where tokens stand with .5 that nothing is
// known of. Tokens that the drafter gives p*p stand with p.
func paced(t *testing.T, longest int, budget float64) *Controller {
	c := timed(t, 1)
	c.drafters[0].costs = draftCosts{nn: 1e9, ny: 1e9 * .002}
	x := c.text(0)
	x.batch = Batch{Texts: 1}
	x.drafters[0].clarity = tally{hits: 5e8, trials: 1e9}
	c.begin(x, Plan{0, longest}, 100, budget)
	return c
}

// At a rate of a token in 10 ms a row, 1 ms, costs .1 tokens and a drafted token
// .2, and one that has to be read later .12 (.6 of a token, the first guess).
// Worked by hand: a token that stands with s is worth s, and costs its row and,
// where the draft ends with it, .12 s. One more behind it is worth s/2, costs .3
// and saves .06 s, two are worth s/2 + s/4, cost .6 and save .09 s.
func TestWeighing(t *testing.T) {
	type answer struct{ propose, goOn bool }
	for name, test := range map[string]struct {
		longest, least int
		budget         float64
		ps             []float64
		want           []answer
	}{
		"sure":                   {4, 0, 1, []float64{.9}, []answer{{true, true}}},                      // .504 > .3
		"doubtful":               {4, 0, 1, []float64{.5}, []answer{{true, false}}},                     // .28 < .3
		"not worth its row":      {4, 0, 1, []float64{.11}, []answer{{false, false}}},                   // .0968 < .1
		"just worth it":          {4, 0, 1, []float64{.12}, []answer{{true, false}}},                    // .1056 > .1
		"all before it count":    {4, 0, 1, []float64{.8, .65}, []answer{{true, true}, {true, false}}},  // .52: .2912 < .3
		"or just enough":         {4, 0, 1, []float64{.8, .68}, []answer{{true, true}, {true, true}}},   // .544: .3046 > .3
		"that they stand, too":   {4, 0, 1, []float64{.7, .13}, []answer{{true, true}, {false, false}}}, // .091: .08 < .1
		"the last":               {2, 0, 1, []float64{1, 1, 1}, []answer{{true, true}, {true, false}, {false, false}}},
		"at least two":           {4, 2, 1, []float64{.01, .01}, []answer{{true, true}, {true, false}}},
		"money for one":          {4, 0, .0059, []float64{1}, []answer{{true, false}}}, // 3 ms and 3 more
		"and for two":            {4, 0, .0061, []float64{1, 1}, []answer{{true, true}, {true, false}}},
		"certain, then hopeless": {4, 0, 1, []float64{1, 0}, []answer{{true, true}, {false, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := paced(t, test.longest, test.budget)
			c.options.Min = test.least
			for i, p := range test.ps {
				propose, goOn := c.weigh(p * p)
				assert.Equal(t, test.want[i], answer{propose, goOn}, "token %d", i)
			}
		})
	}
}

// Where the fourth row is dear and the next ones cost nothing, as on a CPU with
// kernels for four rows, a token that is not worth the step alone is proposed if
// those behind it may be.
func TestWeighingLooksBehindAStep(t *testing.T) {
	c := newController(t, 1, ControllerOptions{})
	for range 5 {
		for rows, took := range []float64{1: 10, 10, 10, 18, 18, 18, 18, 18} {
			if rows > 0 {
				c.Evaluated(rows, ms(took))
			}
		}
	}
	c.drafters[0].costs = draftCosts{nn: 1e9} // drafting costs nothing
	last := func(longest int, p float64) bool {
		x := c.text(0)
		x.batch = Batch{Texts: 1}
		x.drafters[0].clarity = tally{hits: 9e8, trials: 1e9}
		c.begin(x, Plan{0, longest}, 100, 1)
		for range 2 {
			propose, goOn := c.weigh(1)
			require.True(t, propose && goOn)
		}
		propose, _ := c.weigh(p * p)
		return propose
	}
	assert.True(t, last(3, .9), ".9 > .8")
	assert.False(t, last(3, .7), ".7 < .8")
	assert.True(t, last(7, .2), ".2 * (1 + .9 + .81 + .729 + .6561) > .8")
	assert.False(t, last(7, .19), ".19 * 4.095 < .8")
}

// The square root of what a drafter says counts for 6 trials.
func TestSureness(t *testing.T) {
	var s sureness
	assert.InDelta(t, .9, s.chance(.81), 1e-12)
	for range 6 {
		s.count(.81, false)
	}
	assert.InDelta(t, .45, s.chance(.81), 1e-12)
	assert.InDelta(t, math.Sqrt(.88)/2, s.chance(.88), 1e-12, "the same class")
	assert.InDelta(t, .8, s.chance(.64), 1e-12, "another")
	for range 18 {
		s.count(1, true)
	}
	assert.InDelta(t, (18+6*.95)/24, s.chance(.9025), 1e-12, "1 is of the highest class")
}

// 2 falls count for as many as foretold. Ten tokens that stood and were foretold
// to fall with .3 each make 3 falls foretold, or with fading 10 * .3 * .91, of
// which none came.
func TestFalls(t *testing.T) {
	var f falls
	assert.InDelta(t, .7, f.correct(.7), 1e-12)
	for range 10 {
		f.count(.7, true)
	}
	faded := .3 * (1 - math.Pow(.98, 10)) / .02
	assert.InDelta(t, 1-.3*2/(2+faded), f.correct(.7), 1e-12)
	for range 20 {
		f.count(.9, false)
	}
	assert.Zero(t, f.correct(.5), "far more fall than was foretold")
	seen := (1 - math.Pow(.98, 20)) / .02
	assert.InDelta(t, 1-.05*(2+seen)/(2+faded*math.Pow(.98, 20)+.1*seen), f.correct(.95), 1e-12)
}

// weighOne lets a drafter of a text ask once, in a draft of 4 tokens at most.
func weighOne(c *Controller, p float64) (propose, goOn bool) {
	c.begin(c.text(0), Plan{0, 4}, 100, 1)
	return c.weigh(p)
}

// What tokens nothing is known of will be like is known from those weighed, of
// this text, whether they were proposed or not.
func TestWeighingLearnsHowClearATextIs(t *testing.T) {
	c := paced(t, 4, 1)
	c.text(0).drafters[0].clarity = tally{}
	_, goOn := weighOne(c, .81)
	assert.True(t, goOn, "at first .65: .9 * .65 is more than .3")
	for range 100 {
		weighOne(c, .0001)
	}
	_, goOn = weighOne(c, .81)
	assert.False(t, goOn)
	for range 200 {
		weighOne(c, 1)
	}
	_, goOn = weighOne(c, .81)
	assert.True(t, goOn)
}

// A draft of 3 of which one stood says nothing of the third, and a token that was
// refused says nothing of survival, but cost a step. A step takes 3 ms.
func TestWeighedRounds(t *testing.T) {
	c := paced(t, 3, 1)
	x := c.text(0)
	for _, p := range []float64{.81, .81, .81} {
		propose, _ := c.weigh(p)
		require.True(t, propose)
	}
	c.drafters[0].costs = draftCosts{}
	c.Observe(Round{Asked: 3, Drafted: 3, Accepted: 1, Draft: 9 * time.Millisecond})
	assert.Equal(t, tally{1, 2}, *c.drafters[0].sureness.class(.81))
	assert.InDelta(t, .1*.98+.1, x.drafters[0].falls.foretold, 1e-12)
	assert.EqualValues(t, 1, x.drafters[0].falls.seen)
	assert.Equal(t, tally{1, 2}, x.drafters[0].survival.all)
	assert.EqualValues(t, 9, c.drafters[0].costs.nn, "3 tokens")

	propose, _ := weighOne(c, 0)
	require.False(t, propose)
	before := c.drafters[0].costs.nn
	c.Observe(Round{Asked: 4, Draft: 3 * time.Millisecond})
	assert.Equal(t, tally{1, 2}, x.drafters[0].survival.all)
	assert.InDelta(t, 1+draftFade*before, c.drafters[0].costs.nn, 1e-12, "one token")
	assert.EqualValues(t, 4, x.drafters[0].yield.asked)
	assert.InDelta(t, 3e-3, c.draftTime(0, 1, 0), 1e-3)
}

// In a text that falls less than foretold drafts go further.
func TestWeighingFollowsTheText(t *testing.T) {
	c := paced(t, 4, 1)
	_, goOn := weighOne(c, .25)
	assert.False(t, goOn, ".28 < .3")
	c.text(0).drafters[0].falls = falls{foretold: 6}
	_, goOn = weighOne(c, .25)
	assert.True(t, goOn, "1-.5*2/8 is .875")
}

// Two drafts expected to stand for three steps of 2 ms and half a plain step of 10
// ms are what a draft of open length comes to.
func TestOpenLength(t *testing.T) {
	c := paced(t, 4, 1)
	c.drafters[0].weighs = true
	x := c.text(0)
	x.drafters[0].yield = yield{1, 2, .5, 3, 0}.times(1e9)
	c.Plan(0, Batch{Texts: 1, Room: 16}, nil)
	assert.InDelta(t, 2, c.choices[0].yield, 1e-6)
	assert.InDelta(t, 11e-3, c.choices[0].cost, 1e-6)
}

// Two rounds of 3 and 1 tokens, one of them behind, and two more that are
// believed to be of 1.
func TestYield(t *testing.T) {
	var y yield
	y.count(yield{1, 3, .5, 4, 1}, 32)
	y.count(yield{1, 1, 1.5, 2, 0}, 32)
	assert.Equal(t, yield{1, 1.5, 1, 2.5, .75}, y.blend(yield{1, 1, 1, 2, 1}, 2))
	for range 500 {
		y.count(yield{1, 2, .25, 3, 0}, 32)
	}
	assert.InDelta(t, 2, y.blend(yield{}, 0).stand, 1e-3, "old rounds fade")
	assert.InDelta(t, 32, y.rounds, 1)
}

// moods is a text that is clear in some places and not in others: for each token
// the chance to stand, sure or doubtful.
func moods(rng *rand.Rand, share, sure, doubtful float64) func() float64 {
	return func() float64 {
		if rng.Float64() < share {
			return sure
		}
		return doubtful
	}
}

// A drafter that says how sure it is gets further than one that does not: with
// 70% of tokens that stand with .97 and others with .3, further than with the best
// fixed length, which nobody knows at the beginning.
func TestWeighingPays(t *testing.T) {
	m := noisy(machines[0])
	chance := .7*.97 + .3*.3
	best, length := m.best(steady(chance), 16)
	assert.Equal(t, 3, length)
	var weighed, silent outcome
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 6))
		o := m.runWeighed(newController(t, 1, ControllerOptions{}), rng, moods(rng, .7, .97, .3), 1, 256)
		weighed.tokens, weighed.quietMS = weighed.tokens+o.tokens, weighed.quietMS+o.quietMS
		o = m.run(newController(t, 1, ControllerOptions{}), rng, steady(chance), 256)
		silent.tokens, silent.quietMS = silent.tokens+o.tokens, silent.quietMS+o.quietMS
	}
	speed := func(o outcome) float64 { return float64(o.tokens) / o.quietMS }
	assert.Greater(t, speed(weighed)/speed(silent), 1.06)
	assert.Greater(t, speed(weighed)/best, 1.01)
}

// A drafter that is never right, and sure of it, costs no more than one that
// says nothing; and one that knows it is wrong costs less.
func TestWeighingNeverSlower(t *testing.T) {
	for _, m := range machines {
		m := noisy(m)
		for name, says := range map[string]float64{"sure": 9, "of two minds": 1, "knowing": .1} {
			var tokens, took float64
			for seed := range uint64(100) {
				rng := rand.New(rand.NewPCG(seed, 7))
				o := m.runWeighed(newController(t, 1, ControllerOptions{}), rng, moods(rng, .5, .2, .02), says, 128)
				tokens += float64(o.tokens)
				took += o.quietMS
			}
			assert.Greater(t, tokens/took*m.rows(1), .975, "%s, %s", m.name, name)
		}
	}
}

// Whatever the drafter says, no text falls behind by more than the allowance, a
// part of its time, and what the first measurements teach.
func TestRegretOfWeighedDrafts(t *testing.T) {
	for _, m := range machines {
		for _, says := range []float64{.1, 1, 9} {
			for _, share := range []float64{0, .5, 1} {
				for _, tokens := range []int{16, 64, 256, 1024} {
					for seed := range uint64(8) {
						rng := rand.New(rand.NewPCG(seed, 8))
						o := m.runWeighed(newController(t, 1, ControllerOptions{}), rng, moods(rng, share, .5, 0), says, tokens)
						bound := m.rows(1) * (float64(o.tokens)*(1+regret) + allowance + 2.5)
						require.LessOrEqual(t, o.quietMS, bound, "%s, %v, %v, %d tokens: %v", m.name, says, share, tokens, o.lengths)
					}
				}
			}
		}
	}
}

// A model asks before each token, with what it gives its most likely one before
// filters, and does as it is told.
func TestModelWeighs(t *testing.T) {
	s, err := sampler.New(sampler.Config{TopK: 1})
	require.NoError(t, err)
	// Token 2+n, n tokens into the text, has the odds e^n to each of 11 others.
	logits := func(dst []float32, prefix []int32) {
		clear(dst)
		dst[2+len(prefix)] = float32(len(prefix))
	}
	p := []float64{2.718282 / (2.718282 + 11), 7.389056 / (7.389056 + 11), 20.085537 / (20.085537 + 11)}
	for _, rule := range []Rule{Coupled, Block, Token} {
		for name, test := range map[string]struct {
			answers [][2]bool
			want    []int32
		}{
			"none":                {[][2]bool{{false, false}}, []int32{}},
			"none, but go on":     {[][2]bool{{false, true}}, []int32{}},
			"one":                 {[][2]bool{{true, false}}, []int32{3}},
			"two, not the third":  {[][2]bool{{true, true}, {true, true}, {false, false}}, []int32{3, 4}},
			"two, and stop there": {[][2]bool{{true, true}, {true, false}}, []int32{3, 4}},
		} {
			d := newModel(t, tablemodel.New(tablemodel.Config{Vocab: 12, Logits: logits}), ModelOptions{Rule: rule})
			asked := 0
			text := Text{History: []int32{9}, PromptLen: 1, Sampler: s, Weigh: func(x float64) (bool, bool) {
				require.Less(t, asked, len(test.answers), name)
				assert.InDelta(t, p[asked], x, 1e-6, name)
				asked++
				return test.answers[asked-1][0], test.answers[asked-1][1]
			}}
			draft, err := d.Draft(context.Background(), text, 8)
			require.NoError(t, err)
			assert.Equal(t, test.want, draft.Tokens, "%v, %s", rule, name)
			assert.Len(t, test.answers, asked, name)
		}
	}
}

// Trees have the widths they were asked for, and are not weighed.
func TestTreesAreNotWeighed(t *testing.T) {
	s, err := sampler.New(sampler.Config{})
	require.NoError(t, err)
	d := newModel(t, tablemodel.New(tablemodel.Config{Vocab: 12, Logits: tablemodel.Hashed(3)}), ModelOptions{Widths: []int{2}})
	text := Text{History: []int32{9}, PromptLen: 1, Sampler: s, Branches: 1, Weigh: func(float64) (bool, bool) {
		t.Error("weighed")
		return true, true
	}}
	draft, err := d.Draft(context.Background(), text, 3)
	require.NoError(t, err)
	assert.Len(t, draft.Tokens, 3)
}

// asks is a drafter that weighs.
type asks struct {
	scripted
	p        float64
	proposed int
}

func (a *asks) Draft(_ context.Context, t Text, n int) (Draft, error) {
	a.proposed = 0
	if t.Weigh == nil {
		return Draft{Tokens: a.tokens[:n]}, nil
	}
	for more := true; more && a.proposed < n; {
		var propose bool
		if propose, more = t.Weigh(a.p); !propose {
			break
		}
		a.proposed++
	}
	return Draft{Tokens: a.tokens[:a.proposed]}, nil
}

// The cascade lets its controller weigh the drafts of its drafters, each of the
// text that it is for.
func TestCascadeWeighs(t *testing.T) {
	a := &asks{scripted: scripted{tokens: make([]int32, 16)}, p: .9}
	c, err := NewCascade(ControllerOptions{}, a)
	require.NoError(t, err)
	c.controller = timed(t, 1)
	c.weigh = c.controller.weigh
	c.controller.drafters[0].costs = draftCosts{nn: 1e9, ny: 1e9 * .002}
	var stood float64
	for i := range 3 {
		d, r, err := c.Draft(t.Context(), Text{History: []int32{1}}, Batch{Texts: 1, Room: 9})
		require.NoError(t, err)
		assert.NotEmpty(t, d.Tokens)
		assert.Equal(t, a.proposed, r.Drafted)
		if i > 0 { // it is known now that it weighs, and the length is left to that
			assert.Equal(t, 9, r.Asked)
		}
		r.Accepted = r.Drafted
		stood += float64(r.Accepted)
		c.controller.Observe(r)
		assert.InDelta(t, stood, c.controller.drafters[0].sureness.class(.9).hits, 1e-12)
		assert.EqualValues(t, i+1, c.controller.drafters[0].yield.rounds)
	}

	c, err = NewCascade(ControllerOptions{Fixed: true, Max: 5}, a)
	require.NoError(t, err)
	d, _, err := c.Draft(t.Context(), Text{History: []int32{1}, Weigh: c.weigh}, Batch{Texts: 1, Room: 9})
	require.NoError(t, err)
	assert.Len(t, d.Tokens, 5, "a fixed length is not weighed")
}
