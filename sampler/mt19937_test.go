package sampler

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Values of std::mt19937 and of libstdc++'s distributions; the 10000th number
// of the default seed is the one that the C++ standard names.
func TestMT19937(t *testing.T) {
	var m mt19937
	for i, want := range []uint32{1608637542, 3421126067, 4083286876, 787846414} {
		assert.Equal(t, want, m.word(42, i))
	}
	for i, want := range []float64{.79654298428784598, .18343478789336848, .77969099761266125, .59685016158005655} {
		assert.InDelta(t, want, m.double(42, i), 1e-16)
	}
	for i, want := range []float64{.37454012, .796543002, .95071429} {
		assert.InDelta(t, want, m.float(42, i), 1e-8)
	}
	for i, want := range []float64{.49766366630595166, .81783844288953322} {
		assert.InDelta(t, want, m.double(1234, i), 1e-16)
	}
	assert.Equal(t, uint32(4123659995), m.word(5489, 9999))
	assert.Equal(t, uint32(1608637542), m.word(42, 0), "back to the start")
	assert.Equal(t, uint32(4123659995), m.word(5489, 9999))
}

// What llama.cpp draws.
func TestMT19937Draws(t *testing.T) {
	for _, test := range []struct {
		seed uint64
		row  []float32
		want []int32
	}{
		{42, rowA, []int32{2, 0, 2, 1, 0, 0}},
		{1234, make([]float32, 8), []int32{3, 6, 4, 6, 6, 1, 1, 6, 1, 0, 0, 3}},
		{1<<40 + 42, rowA, []int32{2, 0, 2, 1, 0, 0}},
	} {
		for _, k := range []int{0, 8} {
			s := mustNew(t, Config{Temperature: 1, TopK: k, DrawMethod: DrawMT19937, PromptLen: 5})
			for _, from := range []int{0, 3} { // again, from the middle
				for i, want := range test.want[from:] {
					id, err := s.Clone().Pick(test.row, nil, Draw{Seed: test.seed, Pos: 5 + from + i})
					require.NoError(t, err)
					assert.Equal(t, want, id)
					id, err = s.Pick(test.row, nil, Draw{Seed: test.seed, Pos: 5 + from + i})
					require.NoError(t, err)
					assert.Equal(t, want, id)
				}
			}
			_, err := s.Pick(test.row, nil, Draw{Pos: 4})
			assert.EqualError(t, err, "sampler: position 4 lies in the prompt of 5 tokens")
		}
	}
	for q, want := range map[float64]int{.37: 6, .38: 4} {
		s := mustNew(t, Config{Temperature: 1, XTCProbability: q, XTCThreshold: .1, DrawMethod: DrawMT19937})
		var d Dist
		require.NoError(t, s.DistAt(&d, rowA, nil, Draw{Seed: 42}))
		assert.Equal(t, want, d.Len(), "probability %v", q)
	}
}

// Each method draws in its own way.
func TestDrawMethodsDiffer(t *testing.T) {
	row := make([]float32, 50)
	texts := map[string]DrawMethod{}
	for _, method := range []DrawMethod{DrawGumbel, DrawInverse, DrawMT19937} {
		s := mustNew(t, Config{Temperature: 1, DrawMethod: method})
		text := ""
		for pos := range 10 {
			id, err := s.Pick(row, nil, Draw{Seed: 1, Pos: pos})
			require.NoError(t, err)
			text += string(rune('0' + id))
		}
		texts[text] = method
	}
	assert.Len(t, texts, 3)
}

func TestInverse(t *testing.T) {
	var d Dist
	s := mustNew(t, Config{Temperature: 1, DrawMethod: DrawInverse})
	require.NoError(t, s.Dist(&d, rowA, nil))
	for u, want := range map[float64]int32{0: 0, .56: 0, .58: 1, .59: 1, .8: 2, .999: 5, .9999999: 5, 1: 5} {
		assert.Equal(t, want, d.DrawInverse(u), "u %v", u)
	}
	assert.PanicsWithValue(t, "sampler: draw from an empty Dist", func() { new(Dist).DrawInverse(.5) })

	// Pick draws the same from row and list, and as often as is likely.
	var counts [6]float64
	const n = 30000
	chain := mustNew(t, Config{Temperature: 1, TopK: 6, DrawMethod: DrawInverse})
	for pos := range n {
		at := Draw{Seed: 3, Pos: pos}
		id, err := s.Pick(rowA, nil, at)
		require.NoError(t, err)
		require.Equal(t, d.DrawInverse(at.Uniform(0)), id)
		id2, err := chain.Pick(rowA, nil, at)
		require.NoError(t, err)
		require.Equal(t, id, id2)
		counts[id]++
	}
	chi2 := 0.0
	for i, id := range d.ids {
		want := d.probs[i] * n
		chi2 += (counts[id] - want) * (counts[id] - want) / want
	}
	assert.Less(t, chi2, 20.5, "5 degrees of freedom, one in a thousand") // a fixed seed: never by chance

	row := make([]float32, 3001)
	shapes["normal"](rand.New(rand.NewPCG(5, 5)), row)
	require.NoError(t, s.Dist(&d, row, nil))
	for pos := range 300 {
		at := Draw{Seed: 4, Pos: pos}
		id, err := s.Pick(row, nil, at)
		require.NoError(t, err)
		require.Equal(t, d.DrawInverse(at.Uniform(0)), id)
	}
}
