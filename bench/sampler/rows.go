package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/llama"
)

// A rowSet is rows of logits of one kind.
type rowSet struct {
	name string
	rows [][]float32
}

const rowsOfSet = 4

// flat returns rows without a favourite: standard normal logits.
func flat(n int) rowSet {
	r := rand.New(rand.NewPCG(1, 2))
	set := rowSet{name: fmt.Sprintf("%d, flat", n)}
	for range rowsOfSet {
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		set.rows = append(set.rows, row)
	}
	return set
}

// peaked returns rows with twenty tokens far above the rest.
func peaked(n int) rowSet {
	r := rand.New(rand.NewPCG(1, 3))
	set := flat(n)
	set.name = fmt.Sprintf("%d, peaked", n)
	for _, row := range set.rows {
		for i := range row {
			row[i] *= 3
		}
		for j := range 20 {
			row[r.IntN(n)] = float32(18 - j/2)
		}
	}
	return set
}

// text is what the recorded rows are predictions in.
const text = "The three primary colours are red, yellow and blue. Of them all others can be mixed, and what a painter"

// record returns the rows of a model behind a few tokens of the text.
func record(path string) (rowSet, error) {
	ctx := context.Background()
	model, err := llama.Open(ctx, path, llama.ModelOptions{})
	if err != nil {
		return rowSet{}, err
	}
	defer model.Close()
	session, err := model.NewSession(llama.SessionOptions{Context: 256})
	if err != nil {
		return rowSet{}, err
	}
	defer session.Close()
	tokens, err := model.Vocab().Tokenize(text, llama.TokenizeOptions{AddSpecial: true})
	if err != nil {
		return rowSet{}, err
	}
	set := rowSet{}
	for i, token := range tokens {
		if err := session.Eval(ctx, []eval.Row{{Token: token, Output: true}}); err != nil {
			return rowSet{}, err
		}
		if len(tokens)-i <= rowsOfSet {
			set.rows = append(set.rows, append([]float32(nil), session.Logits(0)...))
		}
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	set.name = fmt.Sprintf("%d, %s", len(set.rows[0]), name)
	return set, nil
}
