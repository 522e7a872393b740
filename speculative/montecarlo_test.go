package speculative

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// chiSquaredZ turns counts into a number that is about standard normal if they
// come from the chances given (Wilson and Hilferty 1931). Cells that are
// expected less than 5 times are one.
func chiSquaredZ(counts []int, chances []float64, n int) float64 {
	x2, df := 0.0, -1.0
	few, rare := 0.0, 0.0
	add := func(count, expected float64) {
		x2 += (count - expected) * (count - expected) / expected
		df++
	}
	for i, c := range counts {
		expected := chances[i] * float64(n)
		switch {
		case expected >= 5:
			add(float64(c), expected)
		default:
			few += float64(c)
			rare += expected
		}
	}
	if rare >= 1 || few > 0 {
		add(few, max(rare, 1e-9))
	}
	return (math.Cbrt(x2/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// The noise, the streams and the keys of production, over texts of three tokens
// written in rounds: by position within a distance of .006 (the mean of what
// chance gives is .0024), and pairs by chi-squared, with a
// chance of 1e-4 to fail for each.
func TestMonteCarlo(t *testing.T) {
	t.Parallel()
	const vocab = 8
	n := draws(200000)
	gate := .006 * math.Sqrt(200000/float64(n))
	p, q := randomLogits(11, vocab, 1.2), randomLogits(12, vocab, 1.2)
	config := sampler.Config{Temperature: .9, TopK: 6}
	pLaw := chained(config, p)
	first, second := make([]float64, vocab), make([]float64, vocab) // of the first and the second token
	pair, next := make([]float64, vocab*vocab), make([]float64, vocab*vocab)
	for a := range int32(vocab) {
		first[a] = pLaw(nil).ProbOf(a)
		for b := range int32(vocab) {
			ab := first[a] * pLaw([]int32{a}).ProbOf(b)
			second[b] += ab
			pair[a*vocab+b] += ab
			for c := range int32(vocab) {
				next[b*vocab+c] += ab * pLaw([]int32{a, b}).ProbOf(c)
			}
		}
	}
	rows := func(logits func([]int32) []float32) func(dst []float32, prefix []int32) {
		known := make([][]float32, 3*vocab*vocab) // for up to two tokens
		return func(dst []float32, prefix []int32) {
			code := len(prefix)
			for _, x := range prefix {
				code = code*vocab + int(x)
			}
			if known[code] == nil {
				known[code] = logits(prefix)
			}
			copy(dst, known[code])
		}
	}
	for _, rule := range ratioRules {
		pRows, qRows := rows(p), rows(q)
		s, err := sampler.New(config)
		require.NoError(t, err)
		var v Verifier
		d := Draft{Tokens: make([]int32, 0, 2), Dists: make([]sampler.Dist, 2)}
		row := make([]float32, vocab)
		ones, twos := make([]int, vocab), make([]int, vocab)
		pairs, nexts := make([]int, vocab*vocab), make([]int, vocab*vocab)
		text := make([]int32, 0, 8)
		target := &samplerTarget{logits: pRows, row: make([]float32, vocab), sampler: s}
		for seed := range uint64(n) {
			text = text[:0]
			for len(text) < 3 {
				start := len(text)
				want := min(2, 3-start-1)
				for range want {
					qRows(row, text)
					x, err := rule.Draw(&d.Dists[len(text)-start], s, row, text, seed, start)
					require.NoError(t, err)
					text = append(text, x)
				}
				target.text, target.start, target.done, target.seed = text, start, 0, seed
				k, y, err := v.Verify(rule, target, Draft{Tokens: text[start:], Dists: d.Dists[:want]}, sampler.Draw{Seed: seed, Pos: start})
				if err != nil {
					t.Fatal(err)
				}
				text = append(text[:start+k], y)
			}
			ones[text[0]]++
			twos[text[1]]++
			pairs[text[0]*vocab+text[1]]++
			nexts[text[1]*vocab+text[2]]++
		}
		for i, counts := range [][]int{ones, twos} {
			law := [][]float64{first, second}[i]
			tv := 0.0
			for x, c := range counts {
				tv += math.Abs(float64(c)/float64(n)-law[x]) / 2
			}
			assert.Less(t, tv, gate, "%v, token %d", rule, i)
			assert.Less(t, chiSquaredZ(counts, law, n), 3.72, "%v, token %d", rule, i)
		}
		assert.Less(t, chiSquaredZ(pairs, pair, n), 3.72, "%v, first pair", rule)
		assert.Less(t, chiSquaredZ(nexts, next, n), 3.72, "%v, second pair", rule)
	}
}

// The same through the model drafter, which stops by its own probabilities, by
// itself and where it is told to, and at an end token.
func TestMonteCarloOfModel(t *testing.T) {
	t.Parallel()
	const vocab = 8
	n := draws(20000)
	config := sampler.Config{Temperature: 1, TopK: 6}
	dense := func(seed uint64) func(dst []float32, prefix []int32) {
		return func(dst []float32, prefix []int32) { copy(dst, randomLogits(seed, vocab, 1.2)(prefix)) }
	}
	p := chained(config, randomLogits(21, vocab, 1.2))
	pair := make([]float64, vocab*vocab)
	for a := range int32(vocab) {
		for b := range int32(vocab) {
			pair[a*vocab+b] = p([]int32{2}).ProbOf(a) * p([]int32{2, a}).ProbOf(b)
		}
	}
	s, err := sampler.New(config)
	require.NoError(t, err)
	pMin := func(o *ModelOptions, _ *Text) { o.PMin = .4 }
	weigh := func(_ *ModelOptions, t *Text) {
		t.Weigh = func(p float64) (propose, goOn bool) { return p > .4, p > .55 }
	}
	for i, rule := range slices.Concat(ratioRules, ratioRules) {
		o, told := ModelOptions{Rule: rule, IsEnd: func(x int32) bool { return x == 3 }}, Text{PromptLen: 1, Sampler: s}
		if i < len(ratioRules) {
			pMin(&o, &told)
		} else {
			weigh(&o, &told)
		}
		m := tablemodel.New(tablemodel.Config{Vocab: vocab, Logits: dense(22)})
		d := newModel(t, m, o)
		var v Verifier
		counts := make([]int, vocab*vocab)
		lengths := [4]int{}
		for seed := range uint64(n) {
			text := []int32{2}
			for len(text) < 3 {
				told.History, told.Seed = text, seed
				draft, err := d.Draft(context.Background(), told, 3)
				require.NoError(t, err)
				lengths[len(draft.Tokens)]++
				target := &samplerTarget{logits: dense(21), row: make([]float32, vocab), sampler: s, text: append(text, draft.Tokens...), start: len(text), seed: seed}
				k, y, err := v.Verify(rule, target, draft, sampler.Draw{Seed: seed, Pos: len(text)})
				require.NoError(t, err)
				text = append(append(text, draft.Tokens[:k]...), y)
			}
			d.End(0)
			counts[text[1]*vocab+text[2]]++
		}
		assert.Less(t, chiSquaredZ(counts, pair, n), 3.72, "%v, %d", rule, i)
		for k, times := range lengths {
			assert.Greater(t, times, n/200, "%v, %d: drafts of %d", rule, i, k)
		}
	}
}
