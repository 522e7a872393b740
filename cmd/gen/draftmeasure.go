package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/sampler"
)

// largestMeasured is the most rows of an evaluation that is measured: the last
// token and up to 7 drafts.
const largestMeasured = 8

// A draftMeasure says what a draft model is worth to its target.
type draftMeasure struct {
	Tokens     int          `json:"tokens"` // of the calibration text
	Acceptance []acceptance `json:"acceptance"`
	// DraftCost is the time of a step of the draft model, RowCosts that of an
	// evaluation of the target with 1, 2, ... rows, in steps of the target.
	DraftCost float64   `json:"draft_cost"`
	RowCosts  []float64 `json:"row_costs"`
}

// An acceptance is how often the draw of the draft model is the target's, over
// the positions of a text that both are given.
type acceptance struct {
	Temperature float64 `json:"temperature"`
	Share       float64 `json:"share"`
	// What follows from it: the best number of drafted tokens, and the speed
	// with it in parts of that without.
	Length int     `json:"length"`
	Speed  float64 `json:"speed"`
}

// speed is the speed of drafting g tokens a round, in parts of plain decoding:
// a round gives (1 - a^(g+1)) / (1 - a) tokens and takes g steps of the draft
// model and one evaluation of g+1 rows.
func (m *draftMeasure) speed(a float64, g int) float64 {
	tokens := float64(g + 1)
	if a < 1 {
		tokens = (1 - math.Pow(a, float64(g+1))) / (1 - a)
	}
	return tokens / (float64(g)*m.DraftCost + m.RowCosts[g])
}

// best returns the length at which drafting is fastest, the shortest of equals.
func (m *draftMeasure) best(a float64) (length int, speed float64) {
	for g := 1; g < len(m.RowCosts); g++ {
		if s := m.speed(a, g); s > speed {
			length, speed = g, s
		}
	}
	return length, speed
}

// seedsMeasured is how many seeds draw at each position, where there is
// something to draw.
const seedsMeasured = 4

// measureAcceptance lets target and draft read a text, of which each of them
// takes so many rows at once, and compares what they draw after each token with
// the same noise. Both hold the text afterwards.
func measureAcceptance(ctx context.Context, target, draft eval.Evaluator, tokens []int32, chunk int, chains []sampler.Config) ([]float64, error) {
	samplers := make([]*sampler.Sampler, len(chains))
	for i, c := range chains {
		var err error
		if samplers[i], err = sampler.New(c); err != nil {
			return nil, err
		}
	}
	agreed := make([]int, len(chains))
	for start := 0; start < len(tokens); start += chunk {
		part := tokens[start:min(start+chunk, len(tokens))]
		rows := make([]eval.Row, len(part))
		for i, t := range part {
			rows[i] = eval.Row{Token: t, Output: true}
		}
		for _, m := range []eval.Evaluator{target, draft} {
			if err := m.Eval(ctx, rows); err != nil {
				return nil, err
			}
		}
		for i := range part {
			history := tokens[:start+i+1]
			for j, s := range samplers {
				for seed := range uint64(seedsMeasured) {
					at := sampler.Draw{Seed: seed, Pos: len(history)}
					want, err := s.Pick(target.Logits(i), history, at)
					if err != nil {
						return nil, err
					}
					got, err := s.Pick(draft.Logits(i), history, at)
					if err != nil {
						return nil, err
					}
					if got == want {
						agreed[j]++
					}
				}
			}
		}
	}
	shares := make([]float64, len(chains))
	for j := range shares {
		shares[j] = float64(agreed[j]) / float64(seedsMeasured*len(tokens))
	}
	return shares, nil
}

// How costs are measured: in rounds in which everything has its turn, fewer of
// them where they take long. The least time counts, for all that disturbs adds.
const (
	costRounds  = 7
	leastRounds = 3
	costTime    = 20 * time.Second
)

// measureCosts measures how long a step of the draft and evaluations of the
// target take, behind a text that both hold. token is one to evaluate.
func measureCosts(ctx context.Context, target, draft eval.Evaluator, token int32) (draftCost float64, rowCosts []float64, err error) {
	var draftTimes []float64
	times := make([][]float64, largestMeasured)
	start := time.Now()
	for round := 0; round < costRounds && (round < leastRounds || time.Since(start) < costTime); round++ {
		if err := timeEvals(ctx, draft, token, 1, &draftTimes); err != nil {
			return 0, nil, err
		}
		for n := range times {
			if err := timeEvals(ctx, target, token, n+1, &times[n]); err != nil {
				return 0, nil, err
			}
		}
	}
	step := slices.Min(times[0])
	for n := range times {
		rowCosts = append(rowCosts, slices.Min(times[n])/step)
	}
	return slices.Min(draftTimes) / step, rowCosts, nil
}

// timeEvals adds the seconds of two evaluations of n rows, which are dropped
// again. One before them does not count: the first of a size is slow.
func timeEvals(ctx context.Context, m eval.Evaluator, token int32, n int, seconds *[]float64) error {
	rows := make([]eval.Row, n)
	for i := range rows {
		rows[i] = eval.Row{Token: token, Output: true}
	}
	held := m.Len(0)
	for i := range 3 {
		start := time.Now()
		if err := m.Eval(ctx, rows); err != nil {
			return err
		}
		if took := time.Since(start); i > 0 {
			*seconds = append(*seconds, took.Seconds())
		}
		if err := m.Truncate(0, held); err != nil {
			return fmt.Errorf("%w: drafts need a memory that can drop the end of a text", err)
		}
	}
	return nil
}
