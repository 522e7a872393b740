package speculative

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// An oracle is a drafter that knows the text, and errs now and then.
type oracle struct {
	text []int32 // behind the prompt
	errs float64
	r    *rand.Rand
}

func (o oracle) Draft(_ context.Context, t Text, n int) (Draft, error) {
	var d Draft
	for _, x := range o.text[min(len(t.History)-t.PromptLen, len(o.text)):] {
		if len(d.Tokens) == n {
			break
		}
		if o.r.Float64() < o.errs {
			x = o.r.Int32()
		}
		d.Tokens = append(d.Tokens, x)
	}
	return d, nil
}

func (oracle) End(int) {}

// chains are those of the tests that a text is the plain text.
var chains = map[string]sampler.Config{
	"greedy":   {},
	"default":  sampler.Default(),
	"all":      {Temperature: 1},
	"inverse":  {Temperature: 1, DrawMethod: sampler.DrawInverse},
	"mt19937":  {Temperature: 1, DrawMethod: sampler.DrawMT19937, PromptLen: 2},
	"history":  {Temperature: .9, TopK: 20, PenaltyLastN: 32, RepeatPenalty: 1.3, DRYMultiplier: .8, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 64, NoRepeatNGram: 3},
	"xtc":      {Temperature: .9, XTCProbability: .5, XTCThreshold: .1},
	"mirostat": {Temperature: .9, Mirostat: 2, MirostatTau: 3, MirostatEta: .2},
	"adaptive": {Temperature: .9, TopK: 30, AdaptiveTarget: .3, AdaptiveDecay: .9},
}

// Whatever is drafted, the coupled rule writes the plain text.
func TestCoupledIsThePlainText(t *testing.T) {
	for name, config := range chains {
		a := author{vocab: 40, logits: tablemodel.Hashed(3), config: config, prompt: []int32{5, 6}, seed: 9}
		plain := a.write(t, 80)
		for _, errs := range []float64{0, .3, 1} {
			for _, n := range []int{1, 2, 3, 7, 16} {
				a.n, a.drafter = n, oracle{plain, errs, rand.New(rand.NewPCG(1, 2))}
				assert.Equal(t, plain, a.write(t, 80), "%s, %d drafted, wrong with %v", name, n, errs)
				switch errs {
				case 0:
					assert.Equal(t, (80+n)/(n+1), a.rounds, name)
				case 1:
					assert.Equal(t, 80, a.rounds, name)
				}
			}
		}
	}
}

// Target and drafter agree with the probability of Daliri et al., which is
// near the most that is possible, and drafters get it by drawing as told.
func TestCoupledAgreement(t *testing.T) {
	t.Parallel()
	n := draws(100000)
	for seed := range uint64(6) {
		p, q := randomLogits(seed, 8, 1), randomLogits(seed+10, 8, 1)
		s, err := sampler.New(drawing)
		require.NoError(t, err)
		var dp, dq sampler.Dist
		require.NoError(t, s.Dist(&dp, p(nil), nil))
		require.NoError(t, s.Dist(&dq, q(nil), nil))
		want, common := 0.0, 0.0
		for x := range int32(8) {
			px, qx := dp.ProbOf(x), dq.ProbOf(x)
			common += min(px, qx)
			if px == 0 || qx == 0 {
				continue
			}
			sum := 0.0
			for y := range int32(8) {
				sum += max(dp.ProbOf(y)/px, dq.ProbOf(y)/qx)
			}
			want += 1 / sum
		}
		assert.GreaterOrEqual(t, want, common/(2-common)-1e-12, "(1-d)/(1+d)")
		rowP, rowQ := p(nil), q(nil)
		agreed := 0
		for i := range n {
			x, err := s.Pick(rowP, nil, sampler.Draw{Seed: uint64(i)})
			require.NoError(t, err)
			y, err := Coupled.Draw(nil, s, rowQ, nil, uint64(i), 0)
			require.NoError(t, err)
			if x == y {
				agreed++
			}
		}
		z := (float64(agreed) - want*float64(n)) / math.Sqrt(want*(1-want)*float64(n))
		assert.Less(t, math.Abs(z), 4.0, "%d of %d agree, want %v", agreed, n, want)
	}
}

// Rule.Draw gives the number of the position to Coupled and one of the round to
// the others, with the distribution.
func TestRuleDraw(t *testing.T) {
	s, err := sampler.New(sampler.Config{Temperature: 1, TopK: 10})
	require.NoError(t, err)
	row := randomLogits(4, 30, 1)(nil)
	prefix := []int32{1, 2, 3, 4, 5}
	for seed := range uint64(100) {
		plain, err := s.Pick(row, prefix, sampler.Draw{Seed: seed, Pos: 5})
		require.NoError(t, err)
		x, err := Coupled.Draw(nil, s, row, prefix, seed, 3)
		require.NoError(t, err)
		require.Equal(t, plain, x)
		var want, q sampler.Dist
		require.NoError(t, s.Dist(&want, row, prefix))
		for _, rule := range ratioRules {
			x, err = rule.Draw(&q, s, row, prefix, seed, 3)
			require.NoError(t, err)
			require.Equal(t, want, q)
			number := sampler.Draw{Seed: seed, Pos: 3, Stream: sampler.StreamDraft}.Uniform(2)
			require.Equal(t, want.DrawByID(number), x)
		}
	}
	for _, rule := range []Rule{Coupled, Block, Token} {
		_, err = rule.Draw(new(sampler.Dist), s, []float32{float32(math.NaN())}, nil, 1, 0)
		assert.ErrorIs(t, err, sampler.ErrNaN, fmt.Sprint(rule))
	}
}
