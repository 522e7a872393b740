package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func mu(s *Sampler) float64 { return s.chain[len(s.chain)-1].Step.(*mirostat).mu }

func TestMirostatVectors(t *testing.T) {
	zipf := make([]float64, 8)
	for i := range zipf {
		zipf[i] = math.Pow(1/float64(i+1), 1.5)
	}
	all := []int32{0, 1, 2, 3, 4, 5}
	for _, test := range []struct {
		version int
		tau     float64
		row     []float32
		ids     []int32
		mu      map[int32]float64 // after a token
	}{
		{2, 1, rowA, []int32{0}, map[int32]float64{0: 2.1}},
		{2, 2, rowA, []int32{0, 1, 2, 3}, map[int32]float64{0: 4.121228, 1: 3.976958, 2: 3.904824, 3: 3.832689, 5: 4, -1: 4, 99: 4}},
		{2, 5, rowA, all, map[int32]float64{0: 10.416580, 5: 9.695232}},
		{2, .25, rowA, []int32{0}, map[int32]float64{0: .525}},
		{2, 5, rowB, []int32{0, 1, 2, 4}, map[int32]float64{3: 10}},
		{1, 1, rowA, []int32{0, 1}, nil},
		{1, 2, rowA, []int32{0, 1, 2, 3}, map[int32]float64{0: 4.121228, 3: 3.832689, 4: 4}},
		{1, 5, rowA, all, map[int32]float64{0: 10.416580}},
		{1, 1.5, logs(zipf...), []int32{0, 1, 2}, nil},
		{1, .5, logs(1, math.Pow(2, -.5), math.Pow(3, -.5), .5), []int32{0, 1, 2, 3}, nil}, // flatter than any Zipf's law with a mean
		{1, 2, make([]float32, 6), all, map[int32]float64{4: 4 - .1*(math.Log2(6)-2)}},
		{1, 2, []float32{5}, []int32{0}, map[int32]float64{0: 4.2}},
		{2, 2, []float32{5}, []int32{0}, map[int32]float64{0: 4.2}},
	} {
		c := Config{Temperature: 1, Mirostat: test.version, MirostatTau: test.tau, MirostatEta: .1}
		s := mustNew(t, c)
		var d Dist
		require.NoError(t, s.Dist(&d, test.row, nil))
		assert.Equal(t, test.ids, d.ranking().ids, "version %d, tau %v", test.version, test.tau)
		for token, want := range test.mu {
			n := s.Clone()
			n.Accept(token)
			assert.InDelta(t, want, mu(n), 1e-6, "version %d, tau %v, token %d", test.version, test.tau, token)
			n.Accept(token)
			assert.InDelta(t, want, mu(n), 1e-6, "no row, no change")
		}
		assert.Equal(t, 2*test.tau, mu(s))

		c.TopK, c.Order = 8, []string{"temperature"}
		var d2 Dist
		require.NoError(t, mustNew(t, listed(c)).Dist(&d2, test.row, nil))
		assert.Equal(t, d.ranking().ids, d2.ranking().ids, "from a list")
		assert.Equal(t, d.ranking().probs, d2.ranking().probs)
	}

	s := mustNew(t, Config{Temperature: 1, Mirostat: 2, MirostatTau: 2, MirostatEta: .1, DrawMethod: DrawMT19937})
	id, err := s.Pick(rowA, nil, Draw{Seed: 42})
	require.NoError(t, err)
	assert.Equal(t, int32(2), id, "what llama.cpp draws")
}

// Of the filters in the order only the bans and the temperature remain.
func TestMirostatTakesThePlace(t *testing.T) {
	c := Default()
	c.Mirostat, c.RepeatPenalty, c.MinLength, c.EndTokens = 2, 2, 4, []int32{3}
	c.Suppress, c.NoRepeatNGram = []int32{2}, 1
	assert.Equal(t, "logit_bias(tokens: 1) -> min_length(4 tokens) -> no_repeat_ngram(1) -> temperature(0.8) -> mirostat(version 2, tau 5, eta 0.1) -> draw",
		mustNew(t, c).String())
	ids, _ := distOf(t, c, rowA, 1)
	assert.Equal(t, []int32{0, 4, 5}, ids)
	c.Temperature = .4 // p at temperature .4; nothing below 2^-10
	ids, _ = distOf(t, Config{Temperature: .4, Mirostat: 2, MirostatTau: 5, MirostatEta: .1}, rowA)
	assert.Equal(t, []int32{0, 1, 2, 3}, ids) // 1, .082, .024, .0067 | .00055 over 1.113
}

func TestAdaptivePVectors(t *testing.T) {
	c := Config{Temperature: 1, AdaptiveTarget: .3, AdaptiveDecay: .9}
	s := mustNew(t, c)
	var d Dist
	probs := func(s *Sampler, row []float32) []float64 {
		require.NoError(t, s.Dist(&d, row, nil))
		p := make([]float64, len(row))
		for i, id := range d.ids {
			p[id] = d.probs[i]
		}
		return p
	}
	assert.InDeltaSlice(t, []float64{.026053, .707972, .174009, .061024, .019924, .011017}, probs(s, rowA), 1e-6)
	logits := []float64{.954943, 4.257227, 2.853927, 1.806096, .686771, .094282}
	for i, id := range d.ids {
		assert.InDelta(t, logits[id], d.score(i), 1e-6)
	}

	other, forced := s.Clone(), s.Clone()
	s.Accept(0)
	f := s.chain[0].Step.(*adaptiveP)
	assert.InDelta(t, 3.260893, f.sum, 1e-6)
	assert.InDelta(t, 10, f.weight, 1e-12)
	assert.InDeltaSlice(t, []float64{.009546, .677962, .198225, .074365, .025507, .014394}, probs(s, rowA), 1e-6)
	other.Accept(2)
	f = other.chain[0].Step.(*adaptiveP)
	assert.InDelta(t, 2.825152, f.sum, 1e-6)
	assert.InDelta(t, .317485, 2*.3-f.sum/f.weight, 1e-6)
	forced.Accept(17)
	assert.InDeltaSlice(t, []float64{.026053, .707972, .174009, .061024, .019924, .011017}, probs(forced, rowA), 1e-6)

	assert.Equal(t, "temperature(0.5) -> adaptive_p(target 0.3, decay 0.9) -> draw",
		mustNew(t, Config{Temperature: .5, AdaptiveTarget: .3, AdaptiveDecay: .9}).String())
	p := probs(mustNew(t, c), rowB)
	assert.Zero(t, p[3], "a ban stays")
	for _, target := range []float64{0, -1} {
		assert.Equal(t, "draw", mustNew(t, Config{Temperature: 1, AdaptiveTarget: target}).String())
	}
	_, err := mustNew(t, c).Pick([]float32{-inf, -inf}, nil, Draw{})
	assert.ErrorIs(t, err, ErrNoCandidates)
}

func TestBadStateConfig(t *testing.T) {
	nan := math.NaN()
	nop := StepFunc(func(*Candidates, []int32) error { return nil })
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{Mirostat: 3}, "sampler: mirostat is 3, want 0 (off), 1 or 2"},
		{Config{Mirostat: -1}, "sampler: mirostat is -1, want 0 (off), 1 or 2"},
		{Config{Mirostat: 2, MirostatEta: 1}, "sampler: the mirostat tau is 0, want above 0, since mirostat is on"},
		{Config{Mirostat: 2, MirostatTau: 1}, "sampler: the mirostat eta is 0, want above 0, since mirostat is on"},
		{Config{MirostatTau: nan}, "sampler: the mirostat tau is NaN, want a finite number, 0 or more"},
		{Config{MirostatEta: -1}, "sampler: the mirostat eta is -1, want a finite number, 0 or more"},
		{Config{AdaptiveTarget: nan}, "sampler: the adaptive-p target is NaN, want at most 1"},
		{Config{AdaptiveTarget: 1.5}, "sampler: the adaptive-p target is 1.5, want at most 1"},
		{Config{AdaptiveDecay: 1}, "sampler: the adaptive-p decay is 1, want 0 to 0.99"},
		{Config{AdaptiveDecay: nan}, "sampler: the adaptive-p decay is NaN, want 0 to 0.99"},
		{Config{Mirostat: 1, MirostatTau: 1, MirostatEta: 1, AdaptiveTarget: .5}, "sampler: the adaptive-p target is 0.5, want 0 (off), since mirostat is on"},
		{Config{Steps: map[string]Step{"mirostat": nop}}, `sampler: the step "mirostat" has the name of a filter`},
		{Config{Order: []string{"adaptive_p", "temperature"}}, `sampler: unknown filter "adaptive_p" in the order, want one of ` + allFilters},
	} {
		_, err := New(test.c)
		assert.EqualError(t, err, test.want)
	}
}

var stateful = []Config{
	{Temperature: .9, Mirostat: 1, MirostatTau: 2, MirostatEta: .3},
	{Temperature: .9, Mirostat: 2, MirostatTau: 2, MirostatEta: .3},
	{Temperature: .9, TopK: 30, AdaptiveTarget: .4, AdaptiveDecay: .8},
}

func TestStateful(t *testing.T) {
	for _, c := range stateful {
		assert.True(t, mustNew(t, c).Stateful())
	}
	own := Default()
	own.Steps = map[string]Step{"own": StepFunc(func(*Candidates, []int32) error { return nil })}
	own.Order = append(DefaultOrder(), "own")
	for _, c := range []Config{{}, Default(), own} {
		assert.False(t, mustNew(t, c).Stateful())
	}
}

// A clone that goes its own way, and the sampler it is from, both are as if
// they had been alone from the start, whenever the clone is made. A token that
// was refused or forced keeps the state sound.
func TestCloneIsAReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(stateful).Draw(t, "config")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		rows := make([][]float32, 12)
		for i := range rows {
			rows[i] = make([]float32, 60)
			shapes["normal"](r, rows[i])
		}
		step := func(s *Sampler, i int, accept int32) (d Dist) {
			require.NoError(t, s.Dist(&d, rows[i], nil))
			sum := 0.0
			for _, p := range d.probs {
				sum += p
			}
			require.InDelta(t, 1, sum, 1e-12)
			s.Accept(accept)
			return d
		}
		tokens := rapid.SliceOfN(rapid.Int32Range(-1, 60), 12, 12)
		one, two := tokens.Draw(t, "tokens"), tokens.Draw(t, "other tokens")
		fork := rapid.IntRange(0, 11).Draw(t, "fork")
		copy(two, one[:fork])

		first, again, alone := mustNew(t, c), mustNew(t, c), mustNew(t, c)
		var second *Sampler
		for i := range rows {
			var between Dist
			if i == fork {
				require.NoError(t, first.Dist(&between, rows[i], nil)) // a row without a token
				second = first.Clone()
				require.NoError(t, first.Dist(&between, rows[(i+1)%len(rows)], nil)) // must not reach the clone
				second.Accept(two[i])
			}
			require.Equal(t, step(again, i, one[i]), step(first, i, one[i]))
			want := step(alone, i, two[i])
			if i > fork {
				require.Equal(t, want, step(second, i, two[i]))
			}
		}
	})
}

// Mirostat brings the mean surprise of its draws near tau.
func TestMirostatReachesTau(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, c := range stateful[:2] {
		s, sum := mustNew(t, c), 0.0
		row := make([]float32, 500)
		var d Dist
		const n = 2000
		for pos := range n {
			shapes["normal"](r, row)
			require.NoError(t, s.Dist(&d, row, nil))
			id := d.Draw(Draw{Pos: pos})
			sum -= math.Log2(d.ProbOf(id))
			s.Accept(id)
		}
		assert.InDelta(t, c.MirostatTau, sum/n, .05)
	}
}

// A stateful step of the user's is cloned and told.
func TestOwnStatefulStep(t *testing.T) {
	own := &lastToken{token: 1}
	s := mustNew(t, Config{Temperature: 1, Order: []string{"own"}, Steps: map[string]Step{"own": own}})
	n := s.Clone()
	n.Accept(5)
	var d, d2 Dist
	require.NoError(t, s.Dist(&d, rowA, nil))
	require.NoError(t, n.Dist(&d2, rowA, nil))
	assert.Equal(t, []int32{1}, d.ranking().ids)
	assert.Equal(t, []int32{5}, d2.ranking().ids)
	assert.Equal(t, int32(1), own.token)
}

type lastToken struct{ token int32 }

func (l *lastToken) Apply(c *Candidates, _ []int32) error {
	c.Keep(func(x Candidate) bool { return x.ID == l.token })
	return nil
}
func (l *lastToken) Accept(token int32) { l.token = token }
func (l *lastToken) Clone() Stateful    { n := *l; return &n }
