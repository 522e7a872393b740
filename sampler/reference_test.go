package sampler

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// entry is a candidate of the reference.
type entry struct {
	id int
	l  float64
}

// reference is the chain written as plainly as can be: every token, every
// filter on the sorted whole, probabilities anew each time.
func reference(c Config, logits []float32, history []int32) []entry {
	var live []entry
	for id, l := range logits {
		live = append(live, entry{id, float64(l)})
	}
	order := c.Order
	if order == nil {
		order = []string{"logit_bias", "penalties", "top_k", "top_p", "min_p", "temperature"}
	}
	for _, name := range order {
		live = slices.DeleteFunc(live, func(e entry) bool { return math.IsInf(e.l, -1) })
		sort.Slice(live, func(i, j int) bool {
			if live[i].l != live[j].l {
				return live[i].l > live[j].l
			}
			return live[i].id < live[j].id
		})
		least := max(1, c.MinKeep)
		kept := len(live)
		switch name {
		case "logit_bias":
			for i := range live {
				live[i].l = float64(float32(live[i].l + c.LogitBias[int32(live[i].id)]))
			}
		case "penalties":
			from := max(0, len(history)-c.PenaltyLastN)
			for i := range live {
				n := 0
				for _, h := range history[from:] {
					if int(h) == live[i].id {
						n++
					}
				}
				if n == 0 {
					continue
				}
				l := live[i].l
				if r := c.RepeatPenalty; r != 0 && l > 0 {
					l /= r
				} else if r != 0 {
					l *= r
				}
				l -= float64(n)*c.FrequencyPenalty + c.PresencePenalty
				live[i].l = float64(float32(l))
			}
		case "top_k":
			if c.TopK > 0 {
				kept = max(c.TopK, least)
			}
		case "top_p":
			if c.TopP > 0 && c.TopP < 1 {
				probs := softmax(live)
				sum := 0.0
				for kept = 0; kept < len(probs) && (kept < least || sum < c.TopP); kept++ {
					sum += probs[kept]
				}
			}
		case "min_p":
			if c.MinP > 0 {
				for kept = 0; kept < len(live) && (kept < least || live[kept].l >= live[0].l+math.Log(c.MinP)); kept++ {
				}
			}
		case "temperature":
			if c.Temperature < 1e-5 {
				kept = 1
			} else {
				for i := range live {
					live[i].l /= c.Temperature
				}
			}
		}
		live = live[:min(kept, len(live))]
	}
	return live
}

func softmax(live []entry) []float64 {
	probs := make([]float64, len(live))
	sum := 0.0
	for i := len(live) - 1; i >= 0; i-- {
		probs[i] = math.Exp(live[i].l - live[0].l)
		sum += probs[i]
	}
	for i := range probs {
		probs[i] /= sum
	}
	return probs
}

// shapes are rows that differ in what they ask of the fast paths.
var shapes = map[string]func(r *rand.Rand, row []float32){
	"normal": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(r.NormFloat64() * 3)
		}
	},
	"tied": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(math.Round(r.NormFloat64()*4) / 2)
		}
	},
	"few values": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(r.IntN(3) - 1)
		}
	},
	"mostly banned": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = -inf
			if r.IntN(10) == 0 {
				row[i] = float32(r.NormFloat64())
			}
		}
		row[r.IntN(len(row))] = 1
	},
	"rising": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(i) / 64
		}
	},
	"falling": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = -float32(i) / 64
		}
	},
	"one above all": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		row[r.IntN(len(row))] = 200
	},
	"tiny": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = math.Float32frombits(uint32(r.IntN(40)) | uint32(r.IntN(2))<<31)
		}
	},
	"huge": func(r *rand.Rand, row []float32) {
		for i := range row {
			row[i] = float32(r.NormFloat64() * 1e36)
		}
	},
}

// someCase draws a configuration, a row and a history. Probabilities are
// fractions with a prime denominator, so that no sum of equal ones meets them.
func someCase(t *rapid.T) (c Config, row []float32, history []int32) {
	names := make([]string, 0, len(shapes))
	for name := range shapes {
		names = append(names, name)
	}
	sort.Strings(names)
	shape := rapid.SampledFrom(names).Draw(t, "shape")
	n := rapid.SampledFrom([]int{1, 2, 7, 8, 9, 63, 200, 1000, 3001}).Draw(t, "tokens")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "row seed"), 1))
	row = make([]float32, n)
	shapes[shape](r, row)
	for range rapid.IntRange(0, 40).Draw(t, "history") {
		history = append(history, int32(r.IntN(min(n, 25))))
	}

	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	fraction := func(name string) float64 { return float64(rapid.IntRange(1, 9972).Draw(t, name)) / 9973 }
	c.Temperature = rapid.SampledFrom([]float64{0, 1e-4, .3, .8, 1, 1.7, 30}).Draw(t, "T")
	if maybe("use top-k") {
		c.TopK = rapid.SampledFrom([]int{1, 2, 3, 5, 10, 40, 300, n, n + 1}).Draw(t, "k")
	}
	if maybe("use top-p") {
		c.TopP = fraction("p")
	}
	if maybe("use min-p") {
		c.MinP = fraction("min-p")
	}
	if maybe("use min-keep") {
		c.MinKeep = rapid.IntRange(0, 20).Draw(t, "min-keep")
	}
	if maybe("use penalties") {
		c.PenaltyLastN = rapid.IntRange(1, 50).Draw(t, "window")
		c.RepeatPenalty = rapid.SampledFrom([]float64{0, .5, 1, 1.1, 2}).Draw(t, "repeat")
		c.FrequencyPenalty = rapid.SampledFrom([]float64{-.5, 0, .25, 1}).Draw(t, "frequency")
		c.PresencePenalty = rapid.SampledFrom([]float64{-.5, 0, .25, 1}).Draw(t, "presence")
	}
	if maybe("use bias") {
		c.LogitBias = map[int32]float64{}
		for range rapid.IntRange(1, 5).Draw(t, "biases") {
			c.LogitBias[int32(r.IntN(n))] = rapid.SampledFrom([]float64{-2, -.5, .5, 3, math.Inf(-1)}).Draw(t, "bias")
		}
	}
	if maybe("use order") {
		// Changes of logits stand before the temperature: after it, they
		// round otherwise than in the reference.
		cuts := rapid.Permutation([]string{"top_k", "top_p", "min_p"}).Draw(t, "cuts")
		changes := rapid.Permutation([]string{"logit_bias", "penalties"}).Draw(t, "changes")
		at := rapid.IntRange(0, 3).Draw(t, "temperature at")
		c.Order = slices.Insert(cuts, at, "temperature")
		c.Order = slices.Insert(c.Order, rapid.IntRange(0, at).Draw(t, "changes at"), changes...)
	}
	return c, row, history
}

// listed is c with a step in front that turns the row into a list.
func listed(c Config) Config {
	order := c.Order
	if order == nil {
		order = DefaultOrder()
	}
	c.Order = append([]string{"list"}, order...)
	c.Steps = map[string]Step{"list": StepFunc(func(c *Candidates, _ []int32) error { c.List(); return nil })}
	return c
}

// TestAgainstReference checks, on whatever chain and row: the survivors, their
// order and their probabilities are those of the reference; the way over the
// whole row and the way over a list agree; Pick gives what Dist.Draw gives; the
// row is left as it was.
func TestAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, row, history := someCase(t)
		s, err := New(c)
		require.NoError(t, err)
		s2, err := New(listed(c))
		require.NoError(t, err)
		before := slices.Clone(row)

		var d, d2 Dist
		want := reference(c, row, history)
		err = s.Dist(&d, row, history)
		err2 := s2.Dist(&d2, row, history)
		if len(want) == 0 {
			require.ErrorIs(t, err, ErrNoCandidates)
			require.ErrorIs(t, err2, ErrNoCandidates)
			_, err = s.Pick(row, history, Draw{})
			require.ErrorIs(t, err, ErrNoCandidates)
			return
		}
		require.NoError(t, err)
		require.NoError(t, err2)

		ids := make([]int32, len(want))
		for i, e := range want {
			ids[i] = int32(e.id)
		}
		require.Equal(t, ids, d.ids)
		require.Equal(t, ids, d2.ids)
		require.Equal(t, d.scores, d2.scores)
		require.Equal(t, d.probs, d2.probs)
		sum := 0.0
		for i, p := range softmax(want) {
			if math.Abs(p-d.probs[i]) > 1e-9 { // a float32 logit over T carries some error into huge exponents
				require.InDelta(t, p, d.probs[i], 1e-9, "token %d", ids[i])
			}
			sum += d.probs[i]
		}
		require.InDelta(t, 1, sum, 1e-12)

		seed := rapid.Uint64().Draw(t, "seed")
		for pos := range 4 {
			at := Draw{Seed: seed, Pos: pos}
			id, err := s.Pick(row, history, at)
			require.NoError(t, err)
			require.Equal(t, d.Draw(at), id)
			id, err = s2.Pick(row, history, at)
			require.NoError(t, err)
			require.Equal(t, d.Draw(at), id)
		}
		require.Equal(t, bitsOf(before), bitsOf(row))
	})
}

// TestFilterLaws checks what each filter promises, whatever the row.
func TestFilterLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, row, _ := someCase(t)
		kept := func(c Config) []int32 {
			ids, _ := distOf(t, c, row)
			return ids
		}
		all := kept(Config{Temperature: 1})

		// Neutral values remove nothing; every filter leaves a first part of
		// all tokens in order, which grows with its parameter.
		require.Equal(t, all, kept(Config{Temperature: 1, TopK: len(row), TopP: 1, MinKeep: 3}))
		k := rapid.IntRange(1, len(row)).Draw(t, "k")
		p := rapid.Float64Range(.001, .999).Draw(t, "p")
		top, more := kept(Config{Temperature: 1, TopK: k}), kept(Config{Temperature: 1, TopK: k + 1})
		require.Len(t, top, min(k, len(all)))
		require.Equal(t, all[:len(top)], top)
		require.Equal(t, top, more[:len(top)])
		nucleus, larger := kept(Config{Temperature: 1, TopP: p}), kept(Config{Temperature: 1, TopP: (1 + p) / 2})
		require.Equal(t, all[:len(nucleus)], nucleus)
		require.Equal(t, nucleus, larger[:len(nucleus)])
		near, nearer := kept(Config{Temperature: 1, MinP: p}), kept(Config{Temperature: 1, MinP: (1 + p) / 2})
		require.Equal(t, all[:len(near)], near)
		require.Equal(t, nearer, near[:len(nearer)])

		// Top-k does not depend on the temperature; with min-p it does not
		// matter whether it runs once or twice.
		require.Equal(t, top, kept(Config{Temperature: .5, TopK: k, Order: []string{"temperature", "top_k"}}))
		c := Config{Temperature: 1, MinP: p, Order: []string{"min_p", "again", "temperature"}}
		c.Steps = map[string]Step{"again": minP{p: p}}
		require.Equal(t, near, kept(c))
	})
}

// The set that survives does not depend on where in the row the tokens stand.
func TestOrderFree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	row := make([]float32, 2000)
	shapes["normal"](r, row)
	perm := r.Perm(len(row))
	shuffled := make([]float32, len(row))
	for i, j := range perm {
		shuffled[j] = row[i]
	}
	for name, c := range plans {
		if len(c.LogitBias) > 0 {
			continue
		}
		ids, probs := distOf(t, c, row)
		ids2, probs2 := distOf(t, c, shuffled)
		for i := range ids {
			ids[i] = int32(perm[ids[i]])
		}
		assert.Equal(t, ids, ids2, name)
		assert.Equal(t, probs, probs2, name)
	}
}
