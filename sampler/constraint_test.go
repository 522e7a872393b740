package sampler_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/sampler"
)

// allowed is a constraint that allows the same tokens everywhere, counts what
// it is asked, and refuses to accept any other.
type allowed struct {
	is       map[int32]bool
	asked    int
	accepted []int32
}

func (a *allowed) Allow(dst, tokens []int32) ([]int32, error) {
	a.asked += len(tokens)
	for _, id := range tokens {
		if a.is[id] {
			dst = append(dst, id)
		}
	}
	return dst, nil
}

var errRefused = errors.New("refused")

func (a *allowed) Accept(token int32) error {
	if !a.is[token] {
		return errRefused
	}
	a.accepted = append(a.accepted, token)
	return nil
}

// Clone shares the counter's owner, so that a test sees what a clone is asked.
func (a *allowed) Clone() any { return &sharing{allowed: a, accepted: slices.Clone(a.accepted)} }

type sharing struct {
	*allowed
	accepted []int32
}

func (s *sharing) Accept(token int32) error {
	if !s.is[token] {
		return errRefused
	}
	s.accepted = append(s.accepted, token)
	return nil
}

func (s *sharing) Clone() any { return &sharing{s.allowed, slices.Clone(s.accepted)} }

func allow(ids ...int32) *allowed {
	a := &allowed{is: map[int32]bool{}}
	for _, id := range ids {
		a.is[id] = true
	}
	return a
}

// chains are configurations in which each filter of the package stands first
// among those that look at more than one token, and some mixtures.
func chains(vocabulary int) map[string]sampler.Config {
	base := sampler.Config{Temperature: 1}
	with := func(change func(c *sampler.Config)) sampler.Config {
		c := base
		change(&c)
		return c
	}
	all := map[string]sampler.Config{
		"greedy":      {},
		"plain":       base,
		"temperature": with(func(c *sampler.Config) { c.Temperature = 1.7 }),
		"default":     sampler.Default(),
		"greedy default": func() sampler.Config {
			c := sampler.Default()
			c.Temperature = 0
			return c
		}(),
		"top_k 1":          with(func(c *sampler.Config) { c.TopK = 1 }),
		"top_k 7":          with(func(c *sampler.Config) { c.TopK = 7 }),
		"top_k 100":        with(func(c *sampler.Config) { c.TopK = 100 }),
		"share":            with(func(c *sampler.Config) { c.TopKShare = 0.01 }),
		"top_p":            with(func(c *sampler.Config) { c.TopP = 0.8 }),
		"top_p, least":     with(func(c *sampler.Config) { c.TopP, c.MinKeep = 0.1, 20 }),
		"min_p":            with(func(c *sampler.Config) { c.MinP = 0.1 }),
		"min_p 1":          with(func(c *sampler.Config) { c.MinP = 1 }),
		"min_p, least":     with(func(c *sampler.Config) { c.MinP, c.MinKeep = 0.5, 12 }),
		"min_p, hot":       with(func(c *sampler.Config) { c.MinP, c.Temperature, c.Order = 0.3, 2, []string{"temperature", "min_p"} }),
		"top_n_sigma":      with(func(c *sampler.Config) { c.TopNSigma = 1 }),
		"typical":          with(func(c *sampler.Config) { c.TypicalP = 0.5 }),
		"epsilon":          with(func(c *sampler.Config) { c.Epsilon = 0.01 }),
		"eta":              with(func(c *sampler.Config) { c.Eta = 0.05 }),
		"tfs":              with(func(c *sampler.Config) { c.TailFreeZ = 0.9 }),
		"top_a":            with(func(c *sampler.Config) { c.TopA = 0.3 }),
		"xtc":              with(func(c *sampler.Config) { c.XTCProbability, c.XTCThreshold = 0.5, 0.05 }),
		"dynamic":          with(func(c *sampler.Config) { c.DynTempRange = 0.5 }),
		"mirostat":         with(func(c *sampler.Config) { c.Mirostat, c.MirostatTau, c.MirostatEta = 2, 3, 0.1 }),
		"mirostat 1":       with(func(c *sampler.Config) { c.Mirostat, c.MirostatTau, c.MirostatEta = 1, 3, 0.1 }),
		"adaptive":         with(func(c *sampler.Config) { c.AdaptiveTarget, c.AdaptiveDecay = 0.3, 0.9 }),
		"inverse":          with(func(c *sampler.Config) { c.DrawMethod = sampler.DrawInverse }),
		"inverse of top_k": with(func(c *sampler.Config) { c.DrawMethod, c.TopK = sampler.DrawInverse, 5 }),
		"bias": with(func(c *sampler.Config) {
			c.LogitBias = map[int32]float64{3: 5, 4: math.Inf(-1), int32(vocabulary) - 1: 2}
			c.TopK = 5
		}),
		"penalties": with(func(c *sampler.Config) {
			c.RepeatPenalty, c.FrequencyPenalty, c.PenaltyLastN, c.TopK = 1.5, 0.5, 64, 10
		}),
		"dry, bans": with(func(c *sampler.Config) {
			c.DRYMultiplier, c.DRYBase, c.DRYLastN, c.NoRepeatNGram = 1, 1.75, 64, 2
		}),
		"own step first": with(func(c *sampler.Config) {
			c.Steps = map[string]sampler.Step{"own": sampler.StepFunc(func(c *sampler.Candidates, _ []int32) error {
				c.KeepTop(9)
				return nil
			})}
			c.Order = append([]string{"own"}, sampler.DefaultOrder()...)
		}),
	}
	return all
}

// A sampler with a constraint does what one without it does on a row in which
// all other tokens are banned: the reference writes those bans out.
func TestConstraintIsAMaskBeforeTheChain(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for _, vocabulary := range []int{1, 5, 300, 5000} {
		all := chains(vocabulary)
		if vocabulary < 100 {
			delete(all, "bias")
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			for round := range 60 {
				row := make([]float32, vocabulary)
				for i := range row {
					row[i] = float32(r.NormFloat64() * []float64{0.5, 3, 8}[round%3])
					switch r.IntN(20) {
					case 0:
						row[i] = float32(math.Inf(-1))
					case 1:
						row[i] = float32(math.Round(float64(row[i]))) // ties
					}
				}
				share := []float64{0.001, 0.02, 0.3, 0.7, 0.99, 1}[round%6]
				c := allow()
				masked := slices.Clone(row)
				for id := range int32(vocabulary) {
					if r.Float64() < share {
						c.is[id] = true
					} else {
						masked[id] = float32(math.Inf(-1))
					}
				}
				history := make([]int32, 20)
				for i := range history {
					history[i] = int32(r.IntN(min(vocabulary, 40)))
				}
				config := all[name]
				want, err := sampler.New(config)
				require.NoError(t, err)
				config.Constraint = c
				got, err := sampler.New(config)
				require.NoError(t, err)

				label := fmt.Sprintf("%s, %d tokens, round %d", name, vocabulary, round)
				before := slices.Clone(row)
				for pos := range 3 {
					at := sampler.Draw{Seed: uint64(round), Pos: pos}
					wantID, wantErr := want.Pick(masked, history, at)
					gotID, gotErr := got.Pick(row, history, at)
					require.Equal(t, wantErr != nil, gotErr != nil, "%s: %v, %v", label, wantErr, gotErr)
					if wantErr != nil {
						require.ErrorIs(t, gotErr, sampler.ErrNoCandidates, label)
						continue
					}
					require.Equal(t, wantID, gotID, label)
					require.Equal(t, before, row, "the row is as it was: %s", label)

					var wantDist, gotDist sampler.Dist
					require.NoError(t, want.DistAt(&wantDist, masked, history, at), label)
					require.NoError(t, got.DistAt(&gotDist, row, history, at), label)
					require.Equal(t, wantDist.Len(), gotDist.Len(), label)
					for i := range wantDist.Len() {
						require.Equal(t, wantDist.Token(i), gotDist.Token(i), label)
						require.InDelta(t, wantDist.Prob(i), gotDist.Prob(i), 1e-9, label)
					}
					require.Equal(t, before, row, label)
					want.Accept(wantID)
					got.Accept(gotID)
				}
			}
		}
	}
}

// Where most tokens are allowed, few are asked for.
func TestConstraintIsAskedForFewTokens(t *testing.T) {
	const vocabulary = 50000
	r := rand.New(rand.NewPCG(1, 1))
	row := make([]float32, vocabulary)
	c := allow()
	for i := range row {
		row[i] = float32(3 * r.NormFloat64())
		c.is[int32(i)] = i%10 != 0
	}
	for name, most := range map[string]int{"greedy": 10, "greedy default": 100, "default": 100, "top_k 100": 300, "min_p": 3000, "plain": 10, "temperature": 10} {
		config := chains(vocabulary)[name]
		config.Constraint = c
		s, err := sampler.New(config)
		require.NoError(t, err)
		c.asked = 0
		_, err = s.Pick(row, nil, sampler.Draw{})
		require.NoError(t, err)
		assert.LessOrEqual(t, c.asked, most, name)
	}
}

func TestConstraintWithNothingLeft(t *testing.T) {
	row := []float32{1, 2, 3}
	for name, config := range chains(3) {
		if name == "bias" {
			continue
		}
		config.Constraint = allow()
		s, err := sampler.New(config)
		require.NoError(t, err)
		_, err = s.Pick(row, nil, sampler.Draw{})
		require.ErrorIs(t, err, sampler.ErrNoCandidates, name)
		require.EqualError(t, err, "sampler: no token left to draw from after the constraint", name)
	}
	// The same where what is allowed is banned.
	s, err := sampler.New(sampler.Config{Suppress: []int32{1}, Constraint: allow(1)})
	require.NoError(t, err)
	_, err = s.Pick(row, nil, sampler.Draw{})
	require.ErrorIs(t, err, sampler.ErrNoCandidates)
	require.Equal(t, []float32{1, 2, 3}, row)
}

func TestConstraintAndBadLogits(t *testing.T) {
	nan := float32(math.NaN())
	for name, config := range chains(3) {
		if name == "bias" {
			continue
		}
		config.Constraint = allow(0, 1)
		s, err := sampler.New(config)
		require.NoError(t, err)
		_, err = s.Pick([]float32{1, 2, nan}, nil, sampler.Draw{})
		require.ErrorIs(t, err, sampler.ErrNaN, name)
	}
}

// A text that must end ends, however short: the minimum length gives way.
func TestConstraintBeforeTheMinimumLength(t *testing.T) {
	config := sampler.Config{MinLength: 5, EndTokens: []int32{2}, Constraint: allow(2)}
	s, err := sampler.New(config)
	require.NoError(t, err)
	id, err := s.Pick([]float32{3, 2, 1}, []int32{0}, sampler.Draw{})
	require.NoError(t, err)
	assert.Equal(t, int32(2), id)

	config.Constraint = allow(1, 2)
	s, err = sampler.New(config)
	require.NoError(t, err)
	id, err = s.Pick([]float32{3, 2, 5}, []int32{0}, sampler.Draw{})
	require.NoError(t, err)
	assert.Equal(t, int32(1), id, "there is a way to go on")
}

func TestConstraintState(t *testing.T) {
	c := allow(0, 1)
	config := sampler.Config{Constraint: c}
	s, err := sampler.New(config)
	require.NoError(t, err)
	assert.Equal(t, "constraint -> temperature(0) -> draw", s.String())
	s.Accept(1)
	assert.Empty(t, c.accepted, "the value of the configuration stays as it is")
	clone := s.Clone()
	s.Accept(2) // refused
	s.Accept(0)
	_, err = s.Pick([]float32{1, 2, 3}, nil, sampler.Draw{})
	require.ErrorIs(t, err, errRefused)
	require.EqualError(t, err, "sampler: the constraint: refused")
	id, err := clone.Pick([]float32{1, 2, 3}, nil, sampler.Draw{})
	require.NoError(t, err, "a clone goes its own way")
	assert.Equal(t, int32(1), id)
	_, err = s.Clone().Pick([]float32{1, 2, 3}, nil, sampler.Draw{})
	require.ErrorIs(t, err, errRefused, "and knows what was refused before")

	_, err = sampler.New(sampler.Config{Constraint: badClone{c}})
	require.ErrorContains(t, err, "is no Constraint")
}

type badClone struct{ *allowed }

func (badClone) Clone() any { return 1 }

type failing struct{ *allowed }

func (failing) Allow(dst, _ []int32) ([]int32, error) { return dst, errRefused }
func (f failing) Clone() any                          { return f }

func TestConstraintThatFails(t *testing.T) {
	row := []float32{1, 2, 3}
	for name, config := range chains(3) {
		if name == "bias" {
			continue
		}
		config.Constraint = failing{allow()}
		s, err := sampler.New(config)
		require.NoError(t, err)
		_, err = s.Pick(row, nil, sampler.Draw{})
		require.ErrorIs(t, err, errRefused, name)
		require.Equal(t, []float32{1, 2, 3}, row, name)
	}
}
