package llama

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var nativeRow = []float32{2, 1, .5, 0, -1, -3}

// Each sampler by what it does to one row: a name bound to the wrong function,
// or an argument to the wrong place, shows. The values are those of the
// formulas, worked by hand or apart from llama.cpp.
func TestNativeSamplerSteps(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, c := range map[string]struct {
		steps    []NativeStep
		accepted []int32
		logits   map[int32]float32 // what is left
	}{
		"greedy":      {[]NativeStep{Native("greedy")}, nil, map[int32]float32{0: 2, 1: 1, 2: .5, 3: 0, 4: -1, 5: -3}},
		"top-k":       {[]NativeStep{Native("top_k", 2)}, nil, map[int32]float32{0: 2, 1: 1}},
		"top-p":       {[]NativeStep{Native("top_p", .8, 0)}, nil, map[int32]float32{0: 2, 1: 1, 2: .5}},
		"top-p least": {[]NativeStep{Native("top_p", .5, 2)}, nil, map[int32]float32{0: 2, 1: 1}},
		"min-p":       {[]NativeStep{Native("min_p", .25, 0)}, nil, map[int32]float32{0: 2, 1: 1}},
		"min-p least": {[]NativeStep{Native("min_p", .4, 3)}, nil, map[int32]float32{0: 2, 1: 1, 2: .5}},
		"typical":     {[]NativeStep{Native("typical", .2, 0)}, nil, map[int32]float32{1: 1}},
		"temperature": {[]NativeStep{Native("temp", .5)}, nil, map[int32]float32{0: 4, 1: 2, 2: 1, 3: 0, 4: -2, 5: -6}},
		"dynamic":     {[]NativeStep{Native("top_k", 2), Native("temp_ext", 0, 1, 1), Native("temp", 1)}, nil, map[int32]float32{0: 2 / .839942, 1: 1 / .839942}},
		"top-n-sigma": {[]NativeStep{Native("top_n_sigma", 1)}, nil, map[int32]float32{0: 2, 1: 1, 2: .5, 3: -inf, 4: -inf, 5: -inf}},
		"xtc":         {[]NativeStep{Native("xtc", 1, .1, 0, 1)}, nil, map[int32]float32{2: .5, 3: 0, 4: -1, 5: -3}},
		"penalties":   {[]NativeStep{Native("penalties", 64, 2, .5, .25)}, []int32{0, 0, 4}, map[int32]float32{0: -.25, 1: 1, 2: .5, 3: 0, 4: -2.75, 5: -3}},
		"window":      {[]NativeStep{Native("penalties", 1, 2, .5, .25)}, []int32{0, 0, 4}, map[int32]float32{0: 2, 1: 1, 2: .5, 3: 0, 4: -2.75, 5: -3}},
		"dry":         {[]NativeStep{Native("dry", .5, 2, 1, 64)}, []int32{1, 2, 3, 1, 2}, map[int32]float32{0: 2, 1: 1, 2: .5, 3: -1, 4: -1, 5: -3}},
		"bias":        {[]NativeStep{Native("logit_bias", 3, 2, 0, math.Inf(-1))}, nil, map[int32]float32{0: -inf, 1: 1, 2: .5, 3: 2, 4: -1, 5: -3}},
		"mirostat":    {[]NativeStep{Native("mirostat", 1, 1, .1, 100)}, nil, map[int32]float32{0: 2, 1: 1}},
		"mirostat 2":  {[]NativeStep{Native("mirostat_v2", 1, 2, .1)}, nil, map[int32]float32{0: 2, 1: 1, 2: .5, 3: 0}},
		"adaptive-p":  {[]NativeStep{Native("adaptive_p", .3, .9, 1)}, nil, map[int32]float32{0: .954943, 1: 4.257227, 2: 2.853927, 3: 1.806096, 4: .686771, 5: .094282}},
	} {
		s, err := NewNativeSampler(len(nativeRow), c.steps...)
		require.NoError(t, err, name)
		defer s.Close()
		for _, token := range c.accepted {
			require.NoError(t, s.Accept(token))
		}
		require.NoError(t, s.Apply(nativeRow))
		left := map[int32]float32{}
		for _, x := range s.Candidates(nil) {
			left[x.ID] = x.Logit
		}
		require.Len(t, left, len(c.logits), name)
		for token, want := range c.logits {
			require.Contains(t, left, token, name)
			if want == -inf {
				require.Equal(t, want, left[token], name)
			} else {
				require.InDelta(t, want, left[token], 2e-6, "%s, token %d", name, token)
			}
		}
	}
}

// What is drawn is known from mt19937 with the same seed.
func TestNativeSamplerDraws(t *testing.T) {
	s, err := NewNativeSampler(len(nativeRow), Native("dist", 42))
	require.NoError(t, err)
	defer s.Close()
	draw := func() (drawn []int32) {
		for range 6 {
			token, err := s.Sample(nativeRow)
			require.NoError(t, err)
			drawn = append(drawn, token)
		}
		return drawn
	}
	require.Equal(t, []int32{2, 0, 2, 1, 0, 0}, draw())
	require.NoError(t, s.Reset())
	require.Equal(t, []int32{2, 0, 2, 1, 0, 0}, draw())
	require.InDelta(t, .560893, s.Candidates(nil)[0].Prob, 1e-6)
}

func TestNativeSamplerErrors(t *testing.T) {
	for want, steps := range map[string][]NativeStep{
		`llama: no sampler "topk"`:                                                                      {Native("topk", 1)},
		"llama: sampler top_p with 1 arguments, want 2":                                                 {Native("top_k", 1), Native("top_p", .5)},
		"llama: sampler logit_bias with 3 arguments, want 4":                                            {Native("logit_bias", 1, 1, 2)},
		"llama: argument 1 of sampler top_k is 1.5, want a whole number from -2147483648 to 2147483647": {Native("top_k", 1.5)},
		"llama: argument 1 of sampler dist is -1, want a whole number from 0 to 4294967295":             {Native("dist", -1)},
		"llama: argument 3 of sampler logit_bias is 6, want a whole number from 0 to 5":                 {Native("logit_bias", 1, 1, 6, 1)},
	} {
		_, err := NewNativeSampler(6, steps...)
		require.EqualError(t, err, want)
	}
	_, err := NewNativeSampler(0)
	require.EqualError(t, err, "llama: a vocabulary of 0: want 1 to 2147483647")

	s, err := NewNativeSampler(6, Native("top_k", 3))
	require.NoError(t, err)
	_, err = s.Sample(nativeRow)
	require.EqualError(t, err, "llama: no sampler of the chain selected a token")
	require.Panics(t, func() { _ = s.Apply(nativeRow[1:]) })
	require.Panics(t, func() { _ = s.Accept(6) })
	s.Close()
	s.Close()
	require.Equal(t, "llama: native sampler used after Close", panicText(func() { _ = s.Apply(nativeRow) }))
}
