package speculative

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newNGram(t *testing.T, o NGramOptions) *NGram {
	t.Helper()
	g, err := NewNGram(o)
	require.NoError(t, err)
	return g
}

// drafted returns what is drafted, up to n tokens, after a history in slot 0.
func drafted(t *testing.T, g *NGram, history []int32, prompt, n int) []int32 {
	t.Helper()
	d, err := g.Draft(context.Background(), Text{History: history, PromptLen: prompt}, n)
	require.NoError(t, err)
	require.Nil(t, d.Dists, "proposals are certain")
	require.Len(t, g.Confidence(), len(d.Tokens))
	for _, p := range g.Confidence() {
		require.True(t, p > 0 && p < 1)
	}
	return d.Tokens
}

// Each case is something that a known n-gram drafter gets wrong.
func TestNGramDraft(t *testing.T) {
	for name, c := range map[string]struct {
		options NGramOptions
		history []int32
		n       int
		want    []int32
	}{
		"a prompt of one token":                 {history: []int32{5}, n: 4},
		"a context of one token is enough":      {history: []int32{1, 2, 3, 1}, n: 2, want: []int32{2, 3}},
		"fewer tokens to copy than the context": {history: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8}, n: 1, want: []int32{9}},
		"nothing known, nothing drafted":        {history: []int32{1, 2, 3}, n: 4},
		"stops where nothing is known":          {history: []int32{1, 2, 3, 4, 9, 1, 2}, n: 2, want: []int32{3, 4}},
		"as few as asked for":                   {history: []int32{1, 2, 3, 4, 1, 2}, n: 1, want: []int32{3}},
		"equal tokens do not cancel":            {history: []int32{6, 6, 7, 8, 9, 6, 6}, n: 2, want: []int32{7, 8}},
		"order in a context counts":             {history: []int32{1, 2, 3, 8, 2, 1, 4, 9, 2, 1}, n: 1, want: []int32{4}},
		"the longer context before the newer":   {history: []int32{7, 1, 2, 3, 8, 1, 5, 9, 7, 1}, n: 2, want: []int32{2, 3}},
		"the newest of equals, not the oldest":  {history: []int32{1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, n: 1, want: []int32{4}},
		"the most frequent token's own way":     {history: []int32{1, 2, 3, 8, 1, 2, 3, 7, 1, 2, 4, 9, 1, 2}, n: 2, want: []int32{3, 7}},
		"goes on past its own draft":            {history: []int32{1, 2, 1, 2, 1, 2}, n: 5, want: []int32{1, 2, 1, 2, 1}},
		"ends with an end token":                {options: NGramOptions{IsEnd: func(t int32) bool { return t == 3 }}, history: []int32{1, 2, 3, 4, 1, 2}, n: 4, want: []int32{3}},
		"ends with the first of several":        {options: NGramOptions{IsEnd: func(t int32) bool { return t >= 3 }}, history: []int32{1, 2, 4, 3, 1, 2}, n: 4, want: []int32{4}},
		"one level of storage":                  {options: NGramOptions{Index: IndexOptions{MinContext: 2, MaxContext: 2}}, history: []int32{1, 2, 3, 9, 2}, n: 4},
		"a pair in one level of storage":        {options: NGramOptions{Index: IndexOptions{MinContext: 1, MaxContext: 1}}, history: []int32{1, 2, 1}, n: 1, want: []int32{2}},
		"survival has its least":                {options: NGramOptions{MinSurvival: .9}, history: []int32{1, 2, 3, 1}, n: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if c.n == 0 {
				c.n = 1
			}
			assert.Equal(t, c.want, append([]int32(nil), drafted(t, newNGram(t, c.options), c.history, len(c.history), c.n)...))
		})
	}
}

// What crosses the border of two rounds is learnt, with one token a round too,
// and a prompt of one.
func TestNGramLearnsWhatItIsGivenBitByBit(t *testing.T) {
	text := []int32{1, 2, 3, 4, 5, 6, 1, 2, 3}
	for step := 1; step <= len(text); step++ {
		g := newNGram(t, NGramOptions{})
		var got []int32
		for n := 1; ; n = min(n+step, len(text)) {
			if got = drafted(t, g, text[:n], 1, 3); n == len(text) {
				break
			}
		}
		assert.Equal(t, []int32{4, 5, 6}, got, "%d tokens a round", step)
	}
}

// A slot's next text does not see the last one, whether its end was told or not.
func TestNGramForgetsATextThatEnded(t *testing.T) {
	g := newNGram(t, NGramOptions{})
	require.NotEmpty(t, drafted(t, g, []int32{1, 2, 3, 1}, 4, 2))
	g.End(0)
	g.End(0)
	g.End(7)
	assert.Empty(t, drafted(t, g, []int32{9, 1}, 2, 2))
	assert.Empty(t, drafted(t, g, []int32{2}, 1, 2), "shorter than before")
	assert.Empty(t, drafted(t, g, []int32{3, 2}, 2, 2), "another text")
}

func TestNGramSlotsAreApart(t *testing.T) {
	g := newNGram(t, NGramOptions{})
	first := drafted(t, g, []int32{1, 2, 3, 1}, 4, 2)
	d, err := g.Draft(context.Background(), Text{Slot: 2, History: []int32{9, 1}, PromptLen: 2}, 2)
	require.NoError(t, err)
	assert.Empty(t, d.Tokens)
	_, err = g.Draft(context.Background(), Text{Slot: 2, History: []int32{9, 1, 5, 9}, PromptLen: 2}, 2)
	require.NoError(t, err)
	assert.Equal(t, []int32{2, 3}, first, "valid until the next draft for its own slot")
}

func TestNGramShares(t *testing.T) {
	shared := newIndex(t, IndexOptions{Vocab: 100})
	g := newNGram(t, NGramOptions{Shared: shared, MinSurvival: .001})
	// The prompt is 1 to 12; of it the output takes along 8 tokens of context.
	var history []int32
	for i := range int32(15) {
		history = append(history, i+1)
	}
	drafted(t, g, history, 12, 1)
	assert.Zero(t, shared.Len())
	g.End(0)
	assert.Equal(t, 8+3+1, shared.Len(), "context, output, and the end")
	assert.Equal(t, []int32{13, 14, 15}, drafted(t, g, []int32{50, 12}, 2, 4))

	// A text's own past comes first where both are as likely.
	assert.Equal(t, []int32{60}, drafted(t, g, []int32{12, 60, 61, 12}, 4, 1))

	var file bytes.Buffer
	require.NoError(t, shared.Save(&file))
	loaded, err := LoadIndex(&file, IndexOptions{Vocab: 100})
	require.NoError(t, err)
	g = newNGram(t, NGramOptions{Shared: loaded, MinSurvival: .001})
	assert.Equal(t, []int32{13, 14, 15}, drafted(t, g, []int32{50, 12}, 2, 4))
}

// Fillers need no occurrence; banned tokens are none; what stood weighs more.
func TestNGramFiller(t *testing.T) {
	inf := float32(math.Inf(-1))
	g := newNGram(t, NGramOptions{Filler: 3})
	g.Learn(0, []int32{1, 2}, []float32{0, 0, 0, 0}) // no text yet: nothing happens
	require.Empty(t, drafted(t, g, []int32{1, 2}, 2, 1))
	g.Learn(0, []int32{1, 2}, []float32{inf, inf, inf, 5, inf})
	assert.Equal(t, []int32{3}, drafted(t, g, []int32{1, 2}, 2, 3), "3 after 2, and nothing after 3")
	f := g.texts[0].fillerFor([]int32{1, 2}, 2)
	require.NotNil(t, f)
	assert.Equal(t, [maxFiller]float32{1}, f.weights, "probability 1, and no other token")

	// e^1, e^0 and e^0 of a sum of e+2 = 4.718: .576, .212, .212. The old 1 is
	// halved: .5 + .212 for token 3, .576 for token 0.
	g.Learn(0, []int32{1, 2}, []float32{1, inf, 0, 0, inf})
	assert.InDelta(t, .712, f.weights[0], .001)
	assert.InDelta(t, .576, f.weights[1], .001)
	token, share := f.best()
	assert.Equal(t, int32(3), token)
	assert.InDelta(t, .712/1.5, share, .001)

	nan := float32(math.NaN())
	g.Learn(0, []int32{1, 2}, []float32{nan, 1})
	g.Learn(0, nil, []float32{1})
	g.Learn(9, []int32{1}, []float32{1})
	assert.Empty(t, drafted(t, newNGram(t, NGramOptions{}), []int32{1, 2}, 2, 3))
}

func TestNGramOptions(t *testing.T) {
	for want, o := range map[string]NGramOptions{
		"speculative: Filler is 9: it must be in [0, 8]":                                        {Filler: 9},
		"speculative: MinSurvival is 1: it must be above 0 and below 1, or 0 for the default":   {MinSurvival: 1},
		"speculative: MinSurvival is NaN: it must be above 0 and below 1, or 0 for the default": {MinSurvival: math.NaN()},
		"speculative: Votes is -1: it must be in [1, 64], or 0 for the default":                 {Index: IndexOptions{Votes: -1}},
	} {
		_, err := NewNGram(o)
		assert.EqualError(t, err, want)
	}
}

// The confidence in predictions becomes the share of them that come true, in a
// text and, for the next one, in those before.
func TestConfidenceIsCalibrated(t *testing.T) {
	g := newNGram(t, NGramOptions{})
	rng := rand.New(rand.NewPCG(1, 2))
	for text := range 2 {
		// After 0 comes one of 1 to 4, by chance, and then 0: of two tokens
		// one and a quarter can be known.
		var history []int32
		for range 1000 {
			history = append(history, 0, 1+rng.Int32N(4))
		}
		var said, came, n float64
		for i := 1; i < len(history); i++ {
			d := drafted(t, g, history[:i], 1, 1)
			if len(d) == 0 || text == 0 && i < 600 {
				continue
			}
			said += g.Confidence()[0]
			n++
			if d[0] == history[i] {
				came++
			}
		}
		assert.InDelta(t, .625, came/n, .03)
		assert.InDelta(t, came/n, said/n, .03)
		g.End(0)
	}
}

func TestNGramDoesNotAllocate(t *testing.T) {
	g := newNGram(t, NGramOptions{Index: IndexOptions{Window: 1 << 10}, Filler: 4, Shared: newIndex(t, IndexOptions{})})
	rng := rand.New(rand.NewPCG(1, 2))
	history := make([]int32, 1, 1<<13)
	logits := make([]float32, 60)
	round := func() {
		history = append(history, rng.Int32N(50))
		_, _ = g.Draft(context.Background(), Text{History: history, PromptLen: 1}, 16)
		g.Learn(0, history, logits)
	}
	for range 3000 {
		round()
	}
	assert.Zero(t, testing.AllocsPerRun(500, round))
}

// Along texts that are written down, the controller's cuts are as good as the
// best fixed length but for a few per cent, and never much slower than plain.
func TestNGramOnTexts(t *testing.T) {
	g := newNGram(t, NGramOptions{})
	f16 := machines[0]
	for _, text := range sampleTexts(t) {
		t.Run(text.name, func(t *testing.T) {
			plain := f16.rows(1) * float64(len(text.tokens)-text.prompt)
			best, length := plain, 0
			for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
				if took := replay(t, g, ControllerOptions{Fixed: true, Max: n}, text); took < best {
					best, length = took, n
				}
				g.End(0)
			}
			took := replay(t, g, ControllerOptions{}, text)
			g.End(0)
			t.Logf("plain 1, best fixed length %d %.2f, controller %.2f", length, plain/best, plain/took)
			assert.Less(t, took, text.ofBest*best)
			assert.Less(t, took, 1.01*plain)
			assert.GreaterOrEqual(t, plain/took, text.faster)
		})
	}
}

// replay drafts along a text, and returns what it takes on a machine.
func replay(t *testing.T, g *NGram, o ControllerOptions, text sampleText) float64 {
	c := newController(t, 1, o)
	m := machines[0]
	took := 0.0
	for n := text.prompt; n < len(text.tokens); {
		d := drafted(t, g, text.tokens[:n], text.prompt, c.Max())
		p := c.Plan(0, Batch{Texts: 1, Room: len(text.tokens) - n - 1}, []Offer{{0, g.Confidence()}})
		accepted := 0
		for accepted < p.N && d[accepted] == text.tokens[n+accepted] {
			accepted++
		}
		took += m.rows(1 + p.N)
		c.Evaluated(1+p.N, ms(m.rows(1+p.N)))
		c.Observe(Round{Asked: p.N, Offered: p.N > 0, Drafted: p.N, Accepted: accepted})
		n += accepted + 1
	}
	return took
}

type sampleText struct {
	name   string
	tokens []int32
	prompt int
	faster float64 // than plain decoding
	ofBest float64 // times what the best fixed length takes
}

// sampleTexts are texts by word, a copy of a prompt, an edit of it, and noise,
// and by byte, prose and code.
func sampleTexts(t *testing.T) []sampleText {
	t.Helper()
	rng := rand.New(rand.NewPCG(6, 7))
	words := map[string]int32{}
	id := func(s string) int32 {
		if _, ok := words[s]; !ok {
			words[s] = int32(len(words))
		}
		return words[s]
	}
	var prompt []int32
	for range 60 {
		prompt = append(prompt, id("if"), id(fmt.Sprint("x", rng.IntN(6))), id("<"), id(fmt.Sprint(rng.IntN(9))), id("{"), id(fmt.Sprint("f", rng.IntN(12))), id("}"))
	}
	copied := append(append([]int32(nil), prompt...), prompt...)
	edited := append([]int32(nil), copied...)
	for i := len(prompt); i < len(edited); i++ {
		if edited[i] == id("x3") {
			edited[i] = id("renamed")
		}
	}
	noise := make([]int32, 0, 800)
	for range 800 {
		noise = append(noise, rng.Int32N(200))
	}
	bytesOf := func(file string) (tokens []int32) {
		data, err := os.ReadFile("testdata/" + file)
		require.NoError(t, err)
		for _, b := range data {
			tokens = append(tokens, int32(b))
		}
		return tokens
	}
	return []sampleText{
		{"copy", copied, len(prompt), 4.2, 1.03},
		{"edit", edited, len(prompt), 2.8, 1.03},
		{"noise", noise, 300, .99, 1.01},
		{"prose", bytesOf("prose.txt"), 500, 1.2, 1.03},
		{"code", bytesOf("code.txt"), 500, 1.55, 1.04},
	}
}
