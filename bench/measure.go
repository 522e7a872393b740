package main

import (
	"fmt"
	"slices"

	"github.com/sortes-llm/sortes/bench/internal/measure"
)

// A pair is one measure taken on both sides in turn.
type pair struct {
	name   string
	ours   []float64
	theirs []float64
	unit   string
}

// add runs both sides once. Which goes first alternates with the rounds.
func (p *pair) add(round int, ours, theirs func() (float64, error)) error {
	sides := []struct {
		run func() (float64, error)
		to  *[]float64
	}{{ours, &p.ours}, {theirs, &p.theirs}}
	if round%2 == 1 {
		slices.Reverse(sides)
	}
	for _, s := range sides {
		v, err := s.run()
		if err != nil {
			return err
		}
		*s.to = append(*s.to, v)
	}
	return nil
}

// print shows the medians and the median of the ratios, pair by pair, with
// their range.
func (p *pair) print() {
	ratios := make([]float64, len(p.ours))
	for i := range ratios {
		ratios[i] = p.ours[i] / p.theirs[i]
	}
	fmt.Printf("  %-46s ours %10.2f  theirs %10.2f %-5s ratio %.3f  (%.3f to %.3f)\n",
		p.name, measure.Median(p.ours), measure.Median(p.theirs), p.unit, measure.Median(ratios), slices.Min(ratios), slices.Max(ratios))
}
