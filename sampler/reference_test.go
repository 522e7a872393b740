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
		order = []string{"logit_bias", "min_length", "no_repeat_ngram", "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "epsilon", "eta", "tfs", "top_a", "top_p", "min_p", "xtc", "temperature"}
	}
	for _, name := range order {
		live = slices.DeleteFunc(live, func(e entry) bool { return math.IsInf(e.l, -1) })
		inOrder(live)
		least := max(1, c.MinKeep)
		kept := len(live)
		probs := softmax(live)
		reach := func(bound float64) int { // how many have that probability
			n := 0
			for n < len(live) && (n < least || probs[n] >= bound) {
				n++
			}
			return n
		}
		switch name {
		case "logit_bias":
			for i := range live {
				live[i].l = float64(float32(live[i].l + c.LogitBias[int32(live[i].id)]))
				if slices.Contains(c.Suppress, int32(live[i].id)) {
					live[i].l = math.Inf(-1)
				}
			}
		case "min_length":
			if len(history)-c.PromptLen < c.MinLength {
				for i := range live {
					if slices.Contains(c.EndTokens, int32(live[i].id)) {
						live[i].l = math.Inf(-1)
					}
				}
			}
		case "no_repeat_ngram":
			if n := c.NoRepeatNGram; n > 0 {
				for i := range live {
					next := append(slices.Clone(history), int32(live[i].id))
					for j := 0; j+n < len(next); j++ {
						if slices.Equal(next[j:j+n], next[len(next)-n:]) {
							live[i].l = math.Inf(-1)
						}
					}
				}
			}
		case "dry":
			if c.DRYMultiplier > 0 {
				length := naiveDRY(history[max(0, len(history)-c.DRYLastN):], c.DRYAllowedLength, c.DRYBreakers, len(logits))
				for i := range live {
					if n := length[live[i].id]; n >= 0 {
						live[i].l = float64(float32(live[i].l - c.DRYMultiplier*math.Pow(c.DRYBase, float64(n-c.DRYAllowedLength))))
					}
				}
			}
		case "penalties":
			from := max(0, len(history)-c.PenaltyLastN)
			if c.PenaltySkipPrompt {
				from = max(from, min(c.PromptLen, len(history)))
			}
			for i := range live {
				n := 0
				for _, h := range history[from:] {
					if int(h) == live[i].id {
						n++
					}
				}
				if n == 0 || slices.Contains(c.PenaltyExempt, int32(live[i].id)) {
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
			if c.TopKShare > 0 {
				kept = max(int(math.Ceil(c.TopKShare*float64(len(logits)))), least)
			}
		case "top_n_sigma":
			if c.TopNSigma > 0 && len(live) > 0 {
				n, mean, variance := float64(len(live)), 0.0, 0.0
				for _, e := range live {
					mean += e.l / n
				}
				for _, e := range live {
					variance += (e.l - mean) * (e.l - mean) / n
				}
				for kept = 0; kept < len(live) && (kept < least || live[kept].l >= live[0].l-c.TopNSigma*math.Sqrt(variance)); kept++ {
				}
			}
		case "typ_p":
			if c.TypicalP > 0 && c.TypicalP < 1 {
				// The distance of surprise and entropy is that of depth and mean depth.
				mean := 0.0
				for i := range live {
					mean += probs[i] * (live[0].l - live[i].l)
				}
				index := make([]int, len(live))
				depth := make([]float64, len(live))
				for i := range index {
					index[i], depth[i] = i, live[0].l-live[i].l
				}
				sort.SliceStable(index, func(i, j int) bool {
					a, b := depth[index[i]], depth[index[j]]
					x, y := live[index[i]].l, live[index[j]].l
					switch { // on one side the logits tell, even where subtracting loses their difference
					case a < mean && b < mean:
						return x < y
					case a >= mean && b >= mean:
						return x > y
					}
					return math.Abs(a-mean) < math.Abs(b-mean)
				})
				sum, n := 0.0, 0
				var chosen []entry
				for _, i := range index {
					if n >= least && sum > c.TypicalP {
						break
					}
					sum += probs[i]
					n++
					chosen = append(chosen, live[i])
				}
				inOrder(chosen)
				live, kept = chosen, n
			}
		case "epsilon":
			if c.Epsilon > 0 {
				kept = reach(c.Epsilon)
			}
		case "eta":
			if c.Eta > 0 {
				kept = reach(min(c.Eta, math.Sqrt(c.Eta)*math.Exp(-entropy(probs))))
			}
		case "tfs":
			if c.TailFreeZ > 0 && c.TailFreeZ < 1 && len(live) > 2 {
				var first, second []float64
				for i := range len(probs) - 1 {
					first = append(first, probs[i]-probs[i+1])
				}
				total := 0.0
				for i := range len(first) - 1 {
					second = append(second, math.Abs(first[i]-first[i+1]))
					total += second[i]
				}
				sum := 0.0
				for i := range second {
					if total > 1e-6 {
						sum += second[i] / total
					} else {
						sum += 1 / float64(len(second))
					}
					if sum > c.TailFreeZ && i >= least {
						kept = i
						break
					}
				}
			}
		case "top_a":
			if c.TopA > 0 && len(live) > 0 {
				power := c.TopAPower
				if power == 0 {
					power = 2
				}
				kept = reach(c.TopA * math.Pow(probs[0], power))
			}
		case "xtc":
			if c.XTCProbability > 0 { // the tests have it at 1 or off
				n := 0
				for n < len(live) && probs[n] >= c.XTCThreshold {
					n++
				}
				if n >= 2 && len(live)-n+1 >= least {
					var rest []entry
					for i, e := range live {
						if i >= n-1 || slices.Contains(c.XTCExempt, int32(e.id)) {
							rest = append(rest, e)
						}
					}
					live, kept = rest, len(rest)
				}
			}
		case "top_p":
			if c.TopP > 0 && c.TopP < 1 {
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
			t := c.Temperature
			if c.DynTempRange > 0 && len(live) > 1 {
				low, high := max(0, t-c.DynTempRange), t+c.DynTempRange
				exponent := c.DynTempExponent
				if exponent == 0 {
					exponent = 1
				}
				t = low + (high-low)*math.Pow(entropy(probs)/math.Log(float64(len(live))), exponent)
			}
			if t < 1e-5 {
				kept = 1
			} else {
				for i := range live {
					live[i].l /= t
				}
			}
		}
		live = live[:min(kept, len(live))]
	}
	return live
}

func inOrder(live []entry) {
	sort.Slice(live, func(i, j int) bool {
		if live[i].l != live[j].l {
			return live[i].l > live[j].l
		}
		return live[i].id < live[j].id
	})
}

func entropy(probs []float64) float64 {
	h := 0.0
	for _, p := range probs {
		if p > 0 {
			h -= p * math.Log(p)
		}
	}
	return h
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
	rarely := func(name string) bool { return rapid.IntRange(0, 5).Draw(t, name) == 0 }
	some := func(name string) (ids []int32) {
		for range rapid.IntRange(0, 3).Draw(t, name) {
			ids = append(ids, int32(r.IntN(n)))
		}
		return ids
	}
	c.PromptLen = rapid.IntRange(0, len(history)+1).Draw(t, "prompt")
	if rarely("suppress") {
		c.Suppress = some("suppressed")
	}
	if rarely("use min-length") {
		c.MinLength, c.EndTokens = rapid.IntRange(1, 20).Draw(t, "min-length"), append(some("ends"), 0)
	}
	if rarely("use no-repeat-ngram") {
		c.NoRepeatNGram = rapid.IntRange(1, 4).Draw(t, "n-gram")
	}
	if maybe("restrict penalties") {
		c.PenaltySkipPrompt, c.PenaltyExempt = maybe("skip the prompt"), some("exempt")
	}
	if rarely("use dry") {
		c.DRYMultiplier, c.DRYBase = .75, rapid.SampledFrom([]float64{1, 1.5, 2}).Draw(t, "base")
		c.DRYAllowedLength = rapid.IntRange(0, 3).Draw(t, "allowed")
		c.DRYLastN = rapid.IntRange(1, 50).Draw(t, "dry window")
		if b := some("breaker"); len(b) > 0 {
			c.DRYBreakers = [][]int32{b}
		}
	}
	if c.TopK == 0 && rarely("use top-k share") {
		c.TopKShare = fraction("top-k share")
	}
	if rarely("use dynamic temperature") {
		c.DynTempRange = rapid.SampledFrom([]float64{.1, .5, 2}).Draw(t, "range")
		c.DynTempExponent = rapid.SampledFrom([]float64{0, .5, 1, 2}).Draw(t, "exponent")
	}
	if rarely("use top-n-sigma") {
		c.TopNSigma = 3 * fraction("n")
	}
	if rarely("use typical-p") && shape != "tiny" { // there the mean lies halfway between tokens, up to rounding
		c.TypicalP = fraction("typical-p")
	}
	if rarely("use epsilon") {
		c.Epsilon = fraction("epsilon")
	}
	if rarely("use eta") {
		c.Eta = fraction("eta")
	}
	if rarely("use tail-free") {
		c.TailFreeZ = fraction("z")
	}
	if rarely("use top-a") {
		c.TopA = fraction("a")
		c.TopAPower = rapid.SampledFrom([]float64{0, .5, 1, 2, 3}).Draw(t, "power")
	}
	if rarely("use xtc") {
		c.XTCProbability, c.XTCThreshold = 1, fraction("t")
		c.XTCExempt = some("exempt from xtc")
	}
	if maybe("use order") {
		// Changes of logits stand before the temperature: after it, they
		// round otherwise than in the reference.
		cuts := rapid.Permutation([]string{"top_n_sigma", "top_k", "typ_p", "epsilon", "eta", "tfs", "top_a", "top_p", "min_p", "xtc"}).Draw(t, "cuts")
		changes := rapid.Permutation([]string{"logit_bias", "min_length", "no_repeat_ngram", "penalties", "dry"}).Draw(t, "changes")
		at := rapid.IntRange(0, len(cuts)).Draw(t, "temperature at")
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
		err = s.DistAt(&d, row, history, Draw{})
		err2 := s2.DistAt(&d2, row, history, Draw{})
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
		got, got2 := d.ranking(), d2.ranking()
		require.Equal(t, ids, got.ids)
		require.Equal(t, ids, got2.ids)
		if c.DynTempRange == 0 {
			require.Equal(t, got.scores, got2.scores)
			require.Equal(t, got.probs, got2.probs)
		} else { // follows from sums, whose last digits depend on how they are made
			require.InDeltaSlice(t, got.probs, got2.probs, 1e-9)
		}
		sum := 0.0
		for i, p := range softmax(want) {
			if math.Abs(p-got.probs[i]) > 1e-9 { // a float32 logit over T carries some error into huge exponents
				require.InDelta(t, p, got.probs[i], 1e-9, "token %d", ids[i])
			}
			sum += got.probs[i]
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
			require.Equal(t, d2.Draw(at), id)
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

		for name, set := range map[string]func(c *Config, p float64){
			"epsilon":     func(c *Config, p float64) { c.Epsilon = p },
			"eta":         func(c *Config, p float64) { c.Eta = p },
			"top-a":       func(c *Config, p float64) { c.TopA = p },
			"top-n-sigma": func(c *Config, p float64) { c.TopNSigma = 3 * (1 - p) },
			"tail-free":   func(c *Config, p float64) { c.TailFreeZ = 1 - p },
		} {
			few, many := Config{Temperature: 1}, Config{Temperature: 1}
			set(&few, (1+p)/2)
			set(&many, p)
			less, more := kept(few), kept(many)
			require.NotEmpty(t, less, name)
			require.Equal(t, all[:len(more)], more, name)
			require.Equal(t, more[:len(less)], less, name)
		}
		few, many := kept(Config{Temperature: 1, TypicalP: p}), kept(Config{Temperature: 1, TypicalP: (1 + p) / 2})
		require.NotEmpty(t, few)
		require.Subset(t, many, few, "typical")
		require.Subset(t, all, many, "typical")

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
		assert.InDeltaSlice(t, probs, probs2, 1e-12, name)
	}
}

// ranking is a Dist with the most likely tokens first.
type ranking struct {
	ids           []int32
	probs, scores []float64
}

func (d *Dist) ranking() ranking {
	var r ranking
	for i := range d.Len() {
		r.ids = append(r.ids, d.Token(i))
		r.probs = append(r.probs, d.Prob(i))
		r.scores = append(r.scores, d.score(int(d.ranked(i))))
	}
	return r
}
