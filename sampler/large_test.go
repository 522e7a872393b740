package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// largePlans keep little or much of a row, by every way that asks a sample of
// the row first.
var largePlans = map[string]Config{
	"top-p .1":       {Temperature: .9, TopP: .1},
	"top-p .6":       {Temperature: .9, TopP: .6},
	"top-p .95":      {Temperature: 1, TopP: .95},
	"top-p .999":     {Temperature: 1.5, TopP: .999, MinKeep: 30},
	"top-p .01, 50":  {Temperature: 1.5, TopP: .01, MinKeep: 5000},
	"min-p .05":      {Temperature: .9, MinP: .05},
	"min-p .0001":    {Temperature: .9, MinP: .0001, MinKeep: 3},
	"both":           {Temperature: .9, TopP: .95, MinP: .0001, Order: []string{"temperature", "min_p", "top_p"}},
	"and typical":    {Temperature: .9, TopP: .97, TypicalP: .9, Order: []string{"top_p", "temperature", "typ_p"}},
	"epsilon":        {Temperature: .9, Epsilon: 1e-6},
	"top-a":          {Temperature: 1, TopA: .001},
	"top-n-sigma":    {Temperature: 1, TopNSigma: 4},
	"typical .2":     {Temperature: 1, TypicalP: .2},
	"typical .95":    {Temperature: 1, TypicalP: .95},
	"tail-free":      {Temperature: 1, TailFreeZ: .9},
	"mirostat 1":     {Temperature: 1, Mirostat: 1, MirostatTau: 5, MirostatEta: .1},
	"mirostat 2":     {Temperature: .9, Mirostat: 2, MirostatTau: 9, MirostatEta: .1},
	"adaptive-p":     {Temperature: .9, AdaptiveTarget: .3, AdaptiveDecay: .9},
	"adaptive-p cut": {Temperature: .9, MinP: .0001, AdaptiveTarget: .3, AdaptiveDecay: .9},
	"inverse":        {Temperature: .9, DrawMethod: DrawInverse},
	"inverse, cut":   {Temperature: .9, MinP: .001, DrawMethod: DrawInverse},
	"greedy":         {MinP: .0001, MinKeep: 3},
	"greedy, near":   {TypicalP: .95, Order: []string{"typ_p", "temperature"}},
	"after a cut":    {Temperature: .9, MinP: .0001, TopK: 50, LogitBias: map[int32]float64{5: 2}, Order: []string{"min_p", "logit_bias", "top_k", "temperature"}},
}

// On rows as long as those of real models the shortcuts are taken. What they
// leave, draw and remember is what the plain way over a list does, which the
// reference checks on shorter rows.
func TestLargeRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	row := make([]float32, 50000)
	shapes["flat"] = func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
	}
	defer delete(shapes, "flat")
	cuts, rounds := 0, 3
	if raceDetector {
		rounds = 1
	}
	for shape, fill := range shapes {
		fill(r, row)
		before := bitsOf(row)
		for name, c := range largePlans {
			s, s2 := mustNew(t, c), mustNew(t, listed(c))
			for pos := range rounds {
				var d, d2 Dist
				at := Draw{Seed: 3, Pos: pos}
				id, err := s.Pick(row, nil, at)
				require.NoError(t, err)
				require.NoError(t, s2.DistAt(&d2, row, nil, at))
				if c.DrawMethod == DrawGumbel {
					require.Equal(t, d2.Draw(at), id, "%s, %s", name, shape)
				} else {
					require.Equal(t, d2.DrawInverse(at.Uniform(0)), id, "%s, %s", name, shape)
				}
				if s.c.cut {
					cuts++
				}
				require.NoError(t, s.DistAt(&d, row, nil, at))
				require.True(t, slices.Equal(d2.ids, d.ids), "%s, %s: %d and %d tokens", name, shape, d.Len(), d2.Len())
				assert.InDeltaSlice(t, d2.probs[:min(100, d.Len())], d.probs[:min(100, d.Len())], 1e-9, "%s, %s", name, shape)
				s.Accept(id)
				s2.Accept(id)
			}
			require.Equal(t, before, bitsOf(row), name)
		}
	}
	require.Greater(t, cuts, 15*rounds, "the shortcut is taken")
}
