package main

import (
	"math/rand/v2"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// A chain is one chain of samplers as sortes has it and as llama.cpp does.
type chain struct {
	name    string
	config  sampler.Config
	native  []llama.NativeStep
	history int     // tokens that the samplers look back at
	goAim   float64 // how many times faster than llama.cpp we want to be in Go alone; 0: no aim
	asmAim  float64 // and with the kernels in assembly
}

const seed = 1

// chains are the ones that are measured, with llama.cpp's defaults where a
// name says no more.
func chains() []chain {
	native := llama.Native
	dist := native("dist", seed)
	standard := []llama.NativeStep{native("top_k", 40), native("top_p", .95, 0), native("min_p", .05, 0), native("temp", .8), dist}
	penalised := sampler.Default()
	penalised.RepeatPenalty, penalised.FrequencyPenalty, penalised.PresencePenalty = 1.1, .1, .1
	penalised.DRYMultiplier, penalised.DRYLastN = .8, 1024
	return []chain{
		{name: "default", config: sampler.Default(), native: standard, goAim: 2.5, asmAim: 6},
		{name: "greedy", config: sampler.Config{}, native: []llama.NativeStep{native("greedy")}, goAim: 1.5, asmAim: 6},
		{name: "temperature and draw", config: sampler.Config{Temperature: .8}, native: []llama.NativeStep{native("temp", .8), dist}, goAim: 2, asmAim: 10},
		{name: "top-p alone", config: sampler.Config{Temperature: 1, TopP: .95}, native: []llama.NativeStep{native("top_p", .95, 0), dist}, goAim: 10, asmAim: 40},
		{name: "min-p alone", config: sampler.Config{Temperature: 1, MinP: .05}, native: []llama.NativeStep{native("min_p", .05, 0), dist}, goAim: 2, asmAim: 5},
		{name: "typical", config: sampler.Config{Temperature: 1, TypicalP: .95}, native: []llama.NativeStep{native("typical", .95, 0), dist}, goAim: 5, asmAim: 20},
		{
			name: "mirostat v2", config: sampler.Config{Temperature: 1, Mirostat: 2, MirostatTau: 5, MirostatEta: .1},
			native: []llama.NativeStep{native("mirostat_v2", seed, 5, .1)}, goAim: 5, asmAim: 20,
		},
		{
			name: "default, penalties 64, DRY 1024", config: penalised, history: 1024, goAim: 2, asmAim: 4,
			native: append([]llama.NativeStep{native("penalties", 64, 1.1, .1, .1), native("dry", .8, 1.75, 2, 1024)}, standard...),
		},
		{
			name: "adaptive-p", config: sampler.Config{Temperature: 1, AdaptiveTarget: .3, AdaptiveDecay: .9},
			native: []llama.NativeStep{native("adaptive_p", .3, .9, seed)},
		},
		{name: "top-n-sigma", config: sampler.Config{Temperature: .8, TopNSigma: 1}, native: []llama.NativeStep{native("top_n_sigma", 1), native("temp", .8), dist}},
	}
}

// someText is a history in which sequences come back, as in a text.
func someText(n, vocabulary int) []int32 {
	r := rand.New(rand.NewPCG(seed, 2))
	text := make([]int32, n)
	for i := range text {
		text[i] = int32(r.IntN(vocabulary))
		if i > 20 && r.IntN(3) > 0 {
			text[i] = text[i-1-r.IntN(20)]
		}
	}
	return text
}
