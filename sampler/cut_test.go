package sampler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rows that are long enough to be cut by a sample keep what sorting all of them
// says.
func TestCutAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	row := make([]float32, 33000)
	rows := map[string]func(*rand.Rand, []float32){
		"flat": func(r *rand.Rand, row []float32) {
			for i := range row {
				row[i] = float32(r.NormFloat64())
			}
		},
		"far from zero": func(r *rand.Rand, row []float32) {
			for i := range row {
				row[i] = float32(1000 + r.NormFloat64())
			}
		},
		"peaked": func(r *rand.Rand, row []float32) {
			for i := range row {
				row[i] = float32(r.NormFloat64() * 2)
			}
			for j := range 20 {
				row[r.IntN(len(row))] = float32(14 - j/2)
			}
		},
		"two hills": func(r *rand.Rand, row []float32) {
			for i := range row {
				row[i] = float32(r.NormFloat64())
				if i%16 == 0 {
					row[i] += 6
				}
			}
		},
	}
	for _, name := range []string{"normal", "tied", "few values", "mostly banned", "falling"} {
		rows[name] = shapes[name]
	}
	cuts, all := 0, 0
	for name, fill := range rows {
		fill(r, row)
		for _, c := range []Config{
			{TopP: .3}, {TopP: .8}, {TopP: .95}, {TopP: .995},
			{TypicalP: .3}, {TypicalP: .8}, {TypicalP: .95}, {TypicalP: .995},
		} {
			c.Temperature = []float64{.8, 1, 1.6}[all%3]
			c.Order = []string{"temperature", "typ_p", "top_p"}
			s := mustNew(t, c)
			_, err := s.Pick(row, nil, Draw{})
			require.NoError(t, err)
			all++
			if s.c.cut {
				cuts++
			}
			var d Dist
			require.NoError(t, s.Dist(&d, row, nil))
			var want []int32
			for _, e := range reference(c, row, nil) {
				want = append(want, int32(e.id))
			}
			slices.Sort(want)
			require.True(t, slices.Equal(want, d.ids), "%s, %v: %d tokens, want %d", name, s, d.Len(), len(want))
		}
	}
	require.Greater(t, cuts, all/4, "the shortcut is taken")
}

func TestEdge(t *testing.T) {
	next := func(v, to float32) float32 { return math.Nextafter32(v, to) }
	last, first := edge(5, -3, func(v float32) bool { return v >= -1.25 })
	assert.Equal(t, []float32{-1.25, next(-1.25, -3)}, []float32{last, first})
	last, first = edge(-5, 3, func(v float32) bool { return v <= 0 })
	assert.Equal(t, []float32{0, next(0, 3)}, []float32{last, first})
}

// A Dist is read by id and by likelihood, also in turns and after it was filled
// again.
func TestDistOrders(t *testing.T) {
	s := mustNew(t, Config{Temperature: 1})
	var d Dist
	for _, test := range []struct {
		row    []float32
		byRank []int32
		probs  []float64 // by id
	}{
		{logs(.2, .5, .3), []int32{1, 2, 0}, []float64{.2, .5, .3}},
		{logs(.25, .25, .4, .1), []int32{2, 0, 1, 3}, []float64{.25, .25, .4, .1}},
	} {
		require.NoError(t, s.Dist(&d, test.row, nil))
		sum := 0.0
		for id, p := range test.probs {
			assert.Equal(t, int32(id), d.DrawByID(sum+p/2))
			sum += p
		}
		for i, id := range test.byRank {
			assert.Equal(t, id, d.Token(i))
			assert.InDelta(t, test.probs[id], d.Prob(i), 1e-7)
		}
		for id, p := range test.probs {
			token, prob := d.ByID(id)
			assert.Equal(t, int32(id), token)
			assert.InDelta(t, p, prob, 1e-7)
			assert.Equal(t, id, d.Index(token))
		}
		assert.Equal(t, -1, d.Index(9))
		assert.Equal(t, test.byRank[0], d.DrawInverse(.2))
		assert.Equal(t, test.byRank[1], d.DrawInverse(.45+.1))
	}
}
