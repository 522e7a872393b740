package sampler

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDRYVectors compares what is taken from logits of 0 with values seen on
// llama.cpp.
func TestDRYVectors(t *testing.T) {
	repeated := func(n int) []int32 { return slices.Repeat([]int32{1}, n) }
	for _, test := range []struct {
		name     string
		history  []int32
		lastN    int
		breakers [][]int32
		want     map[int32]float32
	}{
		{"once", []int32{1, 2, 3, 1, 2}, 64, nil, map[int32]float32{3: -.8}},
		{"twice", []int32{1, 2, 3, 1, 2, 3, 1, 2}, 64, nil, map[int32]float32{3: -4.2875}},
		{"two tokens", []int32{4, 1, 2, 3, 0, 1, 2, 4, 1, 2}, 64, nil, map[int32]float32{3: -1.4, 4: -.8}},
		{"short window", []int32{1, 2, 5, 1, 2}, 3, nil, nil},
		{"one token", repeated(6), 64, nil, map[int32]float32{1: -4.2875}},
		{"largest exponent", repeated(300), 1000, nil, map[int32]float32{1: -2.009563e38}},
		{"the token is a breaker", []int32{1, 2, 3, 1, 2}, 64, [][]int32{{3}}, nil},
		{"the last token is a breaker", []int32{1, 2, 3, 1, 2}, 64, [][]int32{{2}}, nil},
		// Behind the breaker there are only 1 2, which are 2 of the 5.
		{"a breaker limits", []int32{3, 1, 2, 3, 1, 2, 3, 1, 2}, 64, [][]int32{{9}, {2, 3}}, map[int32]float32{3: -.8}},
		{"a breaker of two tokens limits more", []int32{5, 6, 1, 2, 3, 5, 6, 1, 2}, 64, [][]int32{{6, 1}}, nil},
		{"the longest breaker counts", []int32{5, 6, 1, 2, 3, 5, 6, 1, 2}, 64, [][]int32{{6, 1}, {6}}, nil},
		{"the longest breaker counts, last", []int32{5, 6, 1, 2, 3, 5, 6, 1, 2}, 64, [][]int32{{6}, {6, 1}}, nil},
		{"half a breaker", []int32{5, 6, 1, 2, 3, 5, 6, 1, 2}, 64, [][]int32{{6, 2}, {2, 1}}, map[int32]float32{3: -2.45}},
		{"tokens that the vocabulary does not have", []int32{77, -5, 3, 77, -5, 77, 77, -5}, 64, nil, map[int32]float32{3: -.8}},
		{"nothing", nil, 64, nil, nil},
	} {
		got := map[int32]float32{}
		look := StepFunc(func(c *Candidates, _ []int32) error {
			for id := range int32(10) {
				if l, ok := c.Logit(id); ok && l != 0 {
					got[id] = l
				}
			}
			return nil
		})
		c := Config{Temperature: 1, DRYMultiplier: .8, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: test.lastN, DRYBreakers: test.breakers,
			Order: []string{"dry", "look"}, Steps: map[string]Step{"look": look}}
		row := make([]float32, 10)
		var d Dist
		require.NoError(t, mustNew(t, c).Dist(&d, row, test.history), test.name)
		assert.Len(t, got, len(test.want), test.name)
		for id, want := range test.want {
			assert.InEpsilon(t, want, got[id], 1e-6, "%s: token %d", test.name, id)
		}
		assert.Equal(t, make([]float32, 10), row, test.name)
	}
}

// naiveDRY returns for each token the longest repetition that it would
// lengthen, or -1, by comparing everything with everything.
func naiveDRY(window []int32, allowed int, breakers [][]int32, vocabulary int) []int {
	n := len(window)
	limit := n
	for i := n - 1; i >= 0 && limit == n; i-- {
		longest := 0
		for _, b := range breakers {
			if i+len(b) <= n && slices.Equal(window[i:i+len(b)], b) {
				longest = max(longest, len(b))
			}
		}
		if longest > 0 {
			limit = n - i - longest
		}
	}
	length := make([]int, vocabulary)
	for token := range length {
		length[token] = -1
		for i := 0; i < n; i++ {
			if int(window[i]) != token {
				continue
			}
			m := 0
			for m < i && m < limit && window[i-1-m] == window[n-1-m] {
				m++
			}
			if i > 0 && m >= allowed && n > allowed {
				length[token] = max(length[token], m)
			}
		}
		for _, b := range breakers {
			if len(b) == 1 && int(b[0]) == token {
				length[token] = -1
			}
		}
	}
	return length
}

func TestDRYAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.Int32Range(0, rapid.Int32Range(0, 4).Draw(t, "highest"))
		window := rapid.SliceOfN(tokens, 0, 40).Draw(t, "window")
		breakers := rapid.SliceOfN(rapid.SliceOfN(tokens, 1, 3), 0, 3).Draw(t, "breakers")
		allowed := rapid.IntRange(0, 5).Draw(t, "allowed")
		c := Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1.5, DRYAllowedLength: allowed, DRYLastN: len(window) + 1, DRYBreakers: breakers}
		want := naiveDRY(window, allowed, breakers, 6)
		c.Steps = map[string]Step{"look": StepFunc(func(c *Candidates, _ []int32) error {
			for token, n := range want {
				l, _ := c.Logit(int32(token))
				if n < 0 {
					require.Zero(t, l, "token %d", token)
				} else {
					require.InEpsilon(t, -math.Pow(1.5, float64(n-allowed)), float64(l), 1e-6, "token %d", token)
				}
			}
			return nil
		})}
		c.Order = []string{"dry", "look"}
		_, err := mustNew(t, c).Pick(make([]float32, 6), window, Draw{})
		require.NoError(t, err)
	})
}

func TestDRYBreakers(t *testing.T) {
	pieces := []string{"a", "b", "ab", "xab", "ba", "cb", "", "aab", "abx", "bca", "c", "abca"}
	calls := map[string]int{}
	tokenize := func(text string) ([]int32, error) {
		calls[text]++
		return []int32{int32(len(text))}, nil
	}
	piece := func(token int32) []byte { return []byte(pieces[token]) }
	got, err := DRYBreakers("abca", len(pieces), piece, tokenize)
	require.NoError(t, err)
	// a|bca, ab|ca, xab|ca, ba|bca, aab|ca, bca|bca, abca
	assert.Equal(t, [][]int32{{0, 3}, {2, 2}, {3, 2}, {4, 3}, {7, 2}, {9, 3}, {11}}, got)
	assert.Equal(t, map[string]int{"bca": 1, "ca": 1}, calls)

	got, err = DRYBreakers("aa", 1, piece, tokenize)
	require.NoError(t, err)
	assert.Equal(t, [][]int32{{0, 1}}, got)
	got, err = DRYBreakers("x", 3, piece, tokenize)
	require.NoError(t, err)
	assert.Empty(t, got)
	got, err = DRYBreakers("ab", 1, piece, func(string) ([]int32, error) { return make([]int32, 30), nil })
	require.NoError(t, err)
	assert.Equal(t, [][]int32{make([]int32, 21)}, got)

	errOwn := errors.New("own")
	_, err = DRYBreakers("ab", 1, piece, func(string) ([]int32, error) { return nil, errOwn })
	assert.ErrorIs(t, err, errOwn)
	_, err = DRYBreakers("", 1, piece, tokenize)
	assert.EqualError(t, err, `sampler: the DRY breaker "" has 0 bytes, want 1 to 40`)
	_, err = DRYBreakers(string(make([]byte, 41)), 1, piece, tokenize)
	assert.ErrorContains(t, err, "has 41 bytes, want 1 to 40")
}
