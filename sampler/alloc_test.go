package sampler

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Once a sampler has seen rows of a kind, it allocates nothing.
func TestNoAllocations(t *testing.T) {
	row := make([]float32, 50000) // long enough for the shortcuts
	shapes["normal"](rand.New(rand.NewPCG(1, 1)), row)
	history := []int32{1, 2, 3, 2, 1, 700, 31999}
	all := maps.Clone(plans)
	maps.Copy(all, largePlans)
	all["penalties and dry"] = Config{
		Temperature: .8, TopK: 40, TopP: .95, MinP: .05, RepeatPenalty: 1.1, FrequencyPenalty: .1, PenaltyLastN: 64,
		DRYMultiplier: .8, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 1024,
	}
	for name, c := range all {
		s := mustNew(t, c)
		var d Dist
		pos := 0
		require.NoError(t, s.DistAt(&d, row, history, Draw{})) // lists as much as any draw will
		room := cap(s.c.list)
		require.NoError(t, s.DistAt(&d, row, history, Draw{}))
		assert.Equal(t, room, cap(s.c.list), "%s: no memory is lost", name)
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			_, err := s.Pick(row, history, Draw{Pos: pos})
			require.NoError(t, err)
			pos++
		}), "Pick, %s", name)
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			require.NoError(t, s.DistAt(&d, row, history, Draw{Pos: pos}))
			s.Accept(5)
		}), "Dist, %s", name)
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			d.Draw(Draw{Pos: pos})
			d.ProbOf(5)
		}), "Dist.Draw, %s", name)
	}
	bans := mustNew(t, Config{Temperature: .8, NoRepeatNGram: 1, Suppress: []int32{4}, MinLength: 9, EndTokens: []int32{3}})
	_, err := bans.Pick(row, history, Draw{})
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		_, err := bans.Pick(row, history, Draw{})
		require.NoError(t, err)
	}), "bans")
	grammar := Default()
	grammar.Constraint = below(31000)
	constrained := mustNew(t, grammar)
	_, err = constrained.Pick(row, history, Draw{})
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		_, err := constrained.Pick(row, history, Draw{})
		require.NoError(t, err)
	}), "constraint")
	var top []TokenLogProb
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		LogProb(row, 3)
		top = TopLogProbs(top[:0], row, 20)
	}), "log-probabilities")
}
