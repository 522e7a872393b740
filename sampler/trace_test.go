package sampler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func near(t *testing.T, want float64, got float64, message ...any) {
	t.Helper()
	assert.InDelta(t, want, got, 1e-6, message...)
}

// What each step leaves of rowA, from the probabilities of that row worked out
// by hand: p = .560893 .206341 .125152 .075909 .027925 .003779.
func TestTraceOfRowA(t *testing.T) {
	s := mustNew(t, Config{LogitBias: map[int32]float64{5: math.Inf(-1)}, TopK: 4, TopP: .8, Temperature: .5})
	var trace Trace
	trace.Top = 2
	s.Trace(&trace)
	at := Draw{Seed: 3, Pos: 7}
	row := slices.Clone(rowA)
	id, err := s.Pick(row, nil, at)
	require.NoError(t, err)
	require.Equal(t, rowA, row)

	type step struct {
		name  string
		row   bool
		count int
		temp  float64
	}
	var steps []step
	for _, x := range trace.Steps {
		steps = append(steps, step{x.Name, x.Row, x.Count, x.Temperature})
	}
	assert.Equal(t, []step{
		{"logits", true, 6, 1}, {"logit_bias", true, 5, 1}, {"top_k", false, 4, 1}, {"top_p", false, 3, 1}, {"temperature", false, 3, .5},
	}, steps)
	for i, want := range [][2]float64{
		{.560893, .206341}, // of all
		{.560893 / (1 - .003779), .206341 / (1 - .003779)},
		{.579259, .213097}, // of the first four
		{.628532, .231224}, // of the first three
		{math.E * math.E / (math.E*math.E + 1 + 1/math.E), 1 / (math.E*math.E + 1 + 1/math.E)}, // at temperature 0.5: depths 0, 2, 3
	} {
		require.Len(t, trace.Steps[i].Top, 2)
		for j, x := range trace.Steps[i].Top {
			assert.Equal(t, int32(j), x.ID)
			assert.Equal(t, rowA[j], x.Logit)
			near(t, want[j], x.Prob, "step %d", i)
		}
	}
	assert.Equal(t, id, trace.Token)
	assert.Equal(t, at, trace.Draw)
	assert.Equal(t, at.Uniform(id), trace.Uniform)
	var d Dist
	require.NoError(t, s.Dist(&d, row, nil))
	near(t, d.ProbOf(id), trace.Prob)

	s.Trace(nil)
	before := trace
	_, err = s.Pick(row, nil, Draw{Seed: 4, Pos: 8})
	require.NoError(t, err)
	assert.Equal(t, before, trace, "no trace any more")
}

// Trace and PickDist change no draw, whatever the chain, and say what DistAt
// says.
func TestTraceAndPickDistChangeNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	all := map[string]Config{
		"inverse": {Temperature: .9, DrawMethod: DrawInverse}, "mt19937": {Temperature: .9, TopP: .9, DrawMethod: DrawMT19937},
		"xtc": {Temperature: 1, XTCProbability: .5, XTCThreshold: .1}, "adaptive": stateful[2], "mirostat 1": stateful[0], "mirostat 2": stateful[1],
	}
	for name, c := range plans {
		all[name] = c
	}
	row := make([]float32, 700)
	history := []int32{1, 2, 3, 1, 2}
	for name, c := range all {
		plain, traced, both := mustNew(t, c), mustNew(t, c), mustNew(t, c)
		trace := Trace{Top: 3}
		traced.Trace(&trace)
		both.Trace(&trace)
		for pos := range 40 {
			shapes["normal"](r, row)
			at := Draw{Seed: 11, Pos: pos}
			want, err := plain.Pick(row, history, at)
			require.NoError(t, err, name)
			got, err := traced.Pick(row, history, at)
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			traceProb := trace.Prob

			var d, e Dist
			got, err = both.PickDist(&d, row, history, at)
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.NoError(t, plain.DistAt(&e, row, history, at), name)
			require.Equal(t, e.ranking().ids, d.ranking().ids, name)
			require.InDeltaSlice(t, e.ranking().probs, d.ranking().probs, 1e-12, name)
			require.InDelta(t, e.ProbOf(want), traceProb, 1e-6, name)
			require.InDelta(t, traceProb, trace.Prob, 1e-9, name)
			last := trace.Steps[len(trace.Steps)-1]
			require.Equal(t, e.Len(), last.Count, name)
			for i, x := range last.Top {
				require.Equal(t, e.ranking().ids[i], x.ID, name)
				require.InDelta(t, e.ranking().probs[i], x.Prob, 1e-6, name)
			}
			for _, s := range []*Sampler{plain, traced, both} {
				s.Accept(want)
			}
		}
	}
}

// The number that an inverse draw uses is the one that the trace names.
func TestTraceNamesTheNumber(t *testing.T) {
	for _, method := range []DrawMethod{DrawInverse, DrawMT19937} {
		s := mustNew(t, Config{Temperature: 1, DrawMethod: method})
		var trace Trace
		s.Trace(&trace)
		for pos := range 20 {
			var d Dist
			id, err := s.PickDist(&d, rowA, nil, Draw{Seed: 42, Pos: pos})
			require.NoError(t, err)
			assert.Equal(t, id, d.DrawInverse(trace.Uniform))
		}
	}
	s := mustNew(t, Config{Temperature: 1, DrawMethod: DrawMT19937})
	var trace Trace
	s.Trace(&trace)
	_, err := s.Pick(rowA, nil, Draw{Seed: 42})
	require.NoError(t, err)
	near(t, .79654298428784598, trace.Uniform, "the first number of libstdc++ for this seed")
}

// A row that cannot be used fails as without a trace, whose steps end there.
func TestTraceOfBadRows(t *testing.T) {
	nan := float32(math.NaN())
	s := mustNew(t, Config{TopK: 2, Temperature: 1})
	trace := Trace{Top: 2}
	s.Trace(&trace)
	var d Dist
	_, err := s.PickDist(&d, []float32{1, nan, 2}, nil, Draw{})
	assert.ErrorIs(t, err, ErrNaN)
	assert.Zero(t, d.Len())
	require.Len(t, trace.Steps, 1)
	assert.Empty(t, trace.Steps[0].Top)
	_, err = s.PickDist(&d, []float32{negInf, negInf}, nil, Draw{})
	assert.ErrorIs(t, err, ErrNoCandidates)
	assert.Zero(t, trace.Steps[0].Count)
	_, err = s.Pick([]float32{1, 2, 3}, nil, Draw{})
	require.NoError(t, err)
	assert.Len(t, trace.Steps, 2)
}

// The steps of a configuration that have a state are not shared by the
// samplers made of it.
func TestStatefulStepsAreTheSamplersOwn(t *testing.T) {
	own := &lastToken{token: 1}
	c := Config{Temperature: 1, Order: []string{"own"}, Steps: map[string]Step{"own": own}}
	one, two := mustNew(t, c), mustNew(t, c)
	one.Accept(4)
	var d Dist
	require.NoError(t, two.Dist(&d, rowA, nil))
	assert.Equal(t, []int32{1}, d.ranking().ids)
	assert.Equal(t, int32(1), own.token)
}

func TestStringNamesTheDraw(t *testing.T) {
	assert.Equal(t, "top_k(3) -> draw(inverse)", mustNew(t, Config{Temperature: 1, TopK: 3, DrawMethod: DrawInverse}).String())
	assert.Equal(t, "draw(mt19937)", mustNew(t, Config{Temperature: 1, DrawMethod: DrawMT19937}).String())
}
