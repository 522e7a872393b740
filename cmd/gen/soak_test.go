package main

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
	"github.com/sortes-llm/sortes/internal/grammartest"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// Random grammars and schemas over a real vocabulary: a sampler draws from
// random logits, up to 200 tokens each, and every text that comes to its end is
// checked by others: a recogniser of its own, and the schema's validator.
func TestGrammarSoak(t *testing.T) {
	model, err := llama.Open(context.Background(), modelPath, llama.ModelOptions{})
	require.NoError(t, err, "run `make model`")
	defer model.Close()
	v := model.Vocab()
	words := grammar.NewVocabulary(v)

	source := rand.New(rand.NewPCG(1, 1))
	noise := make([]float32, 8*v.Size())
	for i := range noise {
		noise[i] = float32(3 * source.NormFloat64())
	}
	closers := v.EndTokens() // and what closes strings and lists is likely, else few texts would end
	for id := range int32(v.Size()) {
		if p := string(v.Piece(id)); p == `"` || p == "]" || p == "}" || p == ")" || p == `":` {
			closers = append(closers, id)
		}
	}
	chains := []sampler.Config{sampler.Default(), {Temperature: 1}, {}, {Temperature: 1, TopP: 0.9}, {Temperature: 1, MinP: 0.05, RepeatPenalty: 1.1, PenaltyLastN: 64}}

	// write returns a text of a grammar and whether it came to its end.
	write := func(m *grammar.Matcher, seed uint64) (text []byte, ended bool) {
		config := chains[seed%uint64(len(chains))]
		config.Constraint = m
		s, err := sampler.New(config)
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(seed, 3))
		var history []int32
		row := make([]float32, v.Size())
		for len(history) < 200 {
			at := r.IntN(len(noise) - len(row))
			copy(row, noise[at:])
			for _, id := range closers {
				row[id] += 12
			}
			id, err := s.Pick(row, history, sampler.Draw{Seed: seed, Pos: len(history)})
			require.NoError(t, err, "after %q", text)
			s.Accept(id)
			if v.IsEOG(id) {
				return text, true
			}
			history = append(history, id)
			text = append(text, v.Piece(id)...)
		}
		return text, false
	}

	rounds := uint64(200)
	if os.Getenv("SORTES_STRESS") != "" {
		rounds = 500
	}
	ended := [2]int{}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(seed, 4))
		gbnf, is := grammartest.Grammar(r)
		if g, err := grammar.Parse(gbnf, "root"); err == nil {
			m, err := g.Matcher(words)
			require.NoError(t, err)
			if text, end := write(m, seed); end {
				require.True(t, utf8.Valid(text))
				require.True(t, is(string(text)), "seed %d: %q is not of\n%s", seed, text, gbnf)
				ended[0]++
			}
		} else {
			require.ErrorContains(t, err, "left recursion")
		}
		schema := grammartest.Schema(r)
		s, err := grammar.ParseSchema(schema)
		if err != nil {
			require.Regexp(t, "nothing is valid|refers to itself without end|not supported beside", err.Error(), schema)
			continue
		}
		g, err := grammar.Parse(s.GBNF(), "root")
		require.NoError(t, err)
		m, err := g.Matcher(words)
		require.NoError(t, err)
		if text, end := write(m, seed); end {
			require.NoError(t, s.Validate(text), "seed %d: %s\n%s", seed, text, schema)
			ended[1]++
		}
	}
	t.Logf("%d texts of grammars and %d documents came to an end", ended[0], ended[1])
	require.Greater(t, min(ended[0], ended[1]), int(rounds)/3)
}
