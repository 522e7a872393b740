package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/sortes-llm/sortes/bench/internal/measure"
)

// distinct4 returns the share of the runs of four tokens that differ from all
// before them: near 1 for a text that goes on, near 0 for one that loops. It is 1
// for fewer than four tokens.
func distinct4(text []int32) float64 {
	seen := map[[4]int32]bool{}
	for i := range len(text) - 3 {
		seen[[4]int32(text[i:i+4])] = true
	}
	if len(text) < 4 {
		return 1
	}
	return float64(len(seen)) / float64(len(text)-3)
}

// loops is the distinct-4 below which a text counts as looping.
const loops = 0.6

// shortest is the number of tokens below which a text says nothing of a rate.
const shortest = 8

// A run of a text, by which sides are compared.
type run struct {
	kind          string
	number, round int
}

// A table is the report at one temperature.
type table struct {
	sides map[string]map[run]measurement
}

func newTable(all []measurement) table {
	t := table{map[string]map[run]measurement{}}
	for _, m := range all {
		if t.sides[m.Side] == nil {
			t.sides[m.Side] = map[run]measurement{}
		}
		t.sides[m.Side][run{m.Kind, m.Number, m.Round}] = m
	}
	return t
}

// A cell is how much faster one side was than another on a kind of prompts: the
// geometric mean over its prompts of the medians over the rounds.
type cell struct {
	ratio  float64 // 0 for none
	spread float64 // half of what lies between the least and the greatest round, relative to the median, on average
}

// ratio compares side a with side b. Without looping texts those are left out
// that loop in plain decoding.
func (t table) ratio(a, b, kind string, looping bool) cell {
	byPrompt := map[int][]float64{}
	for at, m := range t.sides[a] {
		other, ok := t.sides[b][at]
		plain := t.sides["plain"][at]
		if !ok || at.kind != kind || plain.Tokens < shortest || !looping && plain.Distinct < loops {
			continue
		}
		byPrompt[at.number] = append(byPrompt[at.number], m.rate()/other.rate())
	}
	var medians []float64
	spread := 0.0
	for _, v := range byPrompt {
		m := measure.Median(v)
		medians = append(medians, m)
		spread += (slices.Max(v) - slices.Min(v)) / 2 / m / float64(len(byPrompt))
	}
	return cell{measure.GeometricMean(medians), spread}
}

// row prints a comparison over all kinds and their geometric mean.
func (t table) row(w io.Writer, name, a string, b func(kind string) string) {
	fmt.Fprintf(w, "  %-34s", name)
	var all, straight []float64
	spread := 0.0
	for _, kind := range kinds {
		c := t.ratio(a, b(kind), kind, true)
		if c.ratio == 0 {
			fmt.Fprintf(w, " %6s", "-")
			continue
		}
		fmt.Fprintf(w, " %6.2f", c.ratio)
		all = append(all, c.ratio)
		spread += c.spread
		if c := t.ratio(a, b(kind), kind, false); c.ratio > 0 {
			straight = append(straight, c.ratio)
		}
	}
	fmt.Fprintf(w, "  %5.2f  %5.2f   %3.0f%%", measure.GeometricMean(all), measure.GeometricMean(straight), 100*spread/float64(max(1, len(all))))
}

func always(side string) func(string) string { return func(string) string { return side } }

// report prints what was measured at one temperature.
func report(w io.Writer, all []measurement, names []string) {
	if len(all) == 0 {
		return
	}
	t := newTable(all)
	fmt.Fprintf(w, "\ntemperature %g, against plain decoding in the same process\n  %-34s", all[0].Temperature, "")
	for _, kind := range kinds {
		fmt.Fprintf(w, " %6.6s", kind)
	}
	fmt.Fprintf(w, "   mean  no loops spread; accepted, tokens a round, the plain text\n")
	for _, name := range names {
		t.row(w, name, name, always("plain"))
		t.drafting(w, name)
	}
	fmt.Fprintf(w, "  %-34s", "distinct-4 of the plain texts")
	for _, kind := range kinds {
		fmt.Fprintf(w, " %6.2f", t.distinct(kind))
	}
	fmt.Fprintf(w, "\n\n  against llama.cpp's tools\n")
	for _, ours := range []string{"draft", "draft, fixed", "tree, fixed", "block, fixed", "cascade"} {
		t.beside(w, ours, []string{"speculative-simple"})
	}
	for _, ours := range []string{"ngram", "ngram, fixed", "cascade"} {
		t.beside(w, ours, []string{"lookup", "ngram-simple", "ngram-mod", "ngram-cache"})
	}
	t.beside(w, "lookahead, ours", []string{"lookahead"})
	fmt.Fprintf(w, "\n  where the time of a text goes: draft, verify, sampling, rest\n")
	for _, name := range names {
		t.profile(w, name)
	}
}

// drafting prints how drafts of a side fared, over all texts.
func (t table) drafting(w io.Writer, name string) {
	var sum measurement
	same, n := 0, 0
	for _, m := range t.sides[name] {
		sum.Drafted += m.Drafted
		sum.Tested += m.Tested
		sum.Accepted += m.Accepted
		sum.Rounds += m.Rounds
		sum.Tokens += m.Tokens
		n++
		if m.Same {
			same++
		}
	}
	switch {
	case sum.Rounds > 0 && sum.Tested > 0:
		fmt.Fprintf(w, "   %3.0f%% %5.2f  %d of %d", 100*float64(sum.Accepted)/float64(sum.Tested), float64(sum.Tokens)/float64(sum.Rounds), same, n)
	case sum.Rounds == 0 && sum.Drafted > 0: // a tool, which counts all it drafted
		fmt.Fprintf(w, "   %3.0f%% of all drafted", 100*float64(sum.Accepted)/float64(sum.Drafted))
	}
	fmt.Fprintln(w)
}

func (t table) distinct(kind string) float64 {
	var v []float64
	for at, m := range t.sides["plain"] {
		if at.kind == kind {
			v = append(v, m.Distinct)
		}
	}
	if len(v) == 0 {
		return 0
	}
	return measure.Median(v)
}

// beside compares a side with the best of some tools for each kind.
func (t table) beside(w io.Writer, ours string, peers []string) {
	peers = slices.DeleteFunc(slices.Clone(peers), func(p string) bool { return t.sides[p] == nil })
	if t.sides[ours] == nil || len(peers) == 0 {
		return
	}
	name := ours + " / " + peers[0]
	if len(peers) > 1 {
		name = ours + " / the best n-gram tool"
	}
	t.row(w, name, ours, func(kind string) string {
		return slices.MaxFunc(peers, func(a, b string) int {
			return cmp.Compare(t.ratio(a, "plain", kind, true).ratio, t.ratio(b, "plain", kind, true).ratio)
		})
	})
	fmt.Fprintln(w)
}

// profile prints the parts of the time of a side's texts.
func (t table) profile(w io.Writer, name string) {
	var sum measurement
	for _, m := range t.sides[name] {
		if m.Rounds > 0 {
			sum.Draft += m.Draft
			sum.Verify += m.Verify
			sum.Sampling += m.Sampling
			sum.Seconds += m.Seconds
		}
	}
	if sum.Seconds == 0 {
		return
	}
	share := func(s float64) float64 { return 100 * s / sum.Seconds }
	fmt.Fprintf(w, "  %-34s %5.1f%% %5.1f%% %5.1f%% %5.1f%%\n", name, share(sum.Draft), share(sum.Verify), share(sum.Sampling),
		share(sum.Seconds-sum.Draft-sum.Verify-sum.Sampling))
}
