package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sortes-llm/sortes/speculative"
)

// A standing is what a comparison found out about a strategy. Without plain
// decoding beside it there are no ratios, and nothing to compare the text with.
type standing struct {
	Strategy string `json:"strategy"`
	Rule     string `json:"rule,omitempty"` // empty without drafts

	Rate   float64   `json:"tokens_per_second"` // the median of Rates
	Rates  []float64 `json:"tokens_per_second_of_each"`
	Ratio  float64   `json:"ratio_to_plain,omitempty"` // the median of Ratios
	Ratios []float64 `json:"ratio_to_plain_of_each,omitempty"`

	TokensPerPass float64   `json:"tokens_per_pass"`
	Acceptance    []float64 `json:"acceptance,omitempty"` // by position, of the drafts before which all stood
	Drafted       int       `json:"drafted_tokens"`
	Accepted      int       `json:"accepted_tokens"`

	// Of all texts together.
	DraftSeconds    float64 `json:"draft_seconds"`
	VerifySeconds   float64 `json:"verify_seconds"`
	SamplingSeconds float64 `json:"sampling_seconds"`

	Same      *bool  `json:"same_text_as_plain,omitempty"`
	DiffersAt *int   `json:"differs_from_token,omitempty"`
	Finish    string `json:"finish"`
	Prompt    int    `json:"prompt_tokens"`
	Generated int    `json:"generated_tokens"`
	Seed      uint64 `json:"seed"`
	Text      string `json:"text"`

	promised  bool // the text is to be plain's
	perTokens int  // tokens of all texts together
}

// standings works out the table from texts by strategy and repetition. All
// strategies have as many, at least one.
func standings(all []strategy, texts [][]generation) []standing {
	reference := slices.IndexFunc(all, func(s strategy) bool { return s == plainly })
	var table []standing
	for i, s := range all {
		first := texts[i][0]
		row := standing{
			Strategy: s.name, Finish: string(first.stats.Finish),
			Prompt: first.stats.Prompt, Generated: first.stats.Generated, Seed: first.stats.Seed, Text: first.text(),
			promised: s.rule == speculative.Coupled || !s.needsModel(), TokensPerPass: 1,
		}
		var drafts speculative.Stats
		for j, g := range texts[i] {
			row.Rates = append(row.Rates, g.stats.GenerateRate())
			row.perTokens += g.stats.Generated
			drafts.Merge(g.stats.Drafts)
			if reference >= 0 {
				row.against(texts[reference][j], g)
			}
		}
		row.Rate, row.Ratio = median(row.Rates), median(row.Ratios)
		if s != plainly {
			row.Rule = s.rule.String()
			row.count(drafts)
		} else {
			row.Same, row.DiffersAt = nil, nil
		}
		table = append(table, row)
	}
	return table
}

// against compares a text with plain's of the same repetition.
func (r *standing) against(plain, g generation) {
	if rate := plain.stats.GenerateRate(); rate > 0 {
		r.Ratios = append(r.Ratios, g.stats.GenerateRate()/rate)
	}
	a, b := plain.ids(), g.ids()
	same := slices.Equal(a, b) && plain.stats.Finish == g.stats.Finish
	if r.Same == nil || *r.Same {
		r.Same = &same
		if !same {
			at := commonPrefix(a, b)
			r.DiffersAt = &at
		}
	}
}

func commonPrefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (r *standing) count(s speculative.Stats) {
	r.TokensPerPass = s.TokensPerRound()
	for _, rank := range s.ByRank {
		if rank.Tested > 0 {
			r.Acceptance = append(r.Acceptance, float64(rank.Accepted)/float64(rank.Tested))
		}
	}
	for _, d := range s.Drafter { // of a tree all tokens, where a position counts once
		r.Drafted += d.Drafted
		r.Accepted += d.Accepted
	}
	r.DraftSeconds, r.VerifySeconds, r.SamplingSeconds = s.Draft.Seconds(), s.Verify.Seconds(), s.Sampling.Seconds()
}

// median is the middle of numbers, or the mean of the two in the middle; 0
// without any.
func median(numbers []float64) float64 {
	n := len(numbers)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

var tableHead = []string{"strategy", "tokens/s", "ratio", "range", "tokens/pass", "accepted %", "draft ms", "verify ms", "sampler ms", "as plain", "finish"}

// shownPositions is how many positions of a draft the table has room for.
const shownPositions = 6

// cells returns a row of the table. Times are those of one token.
func (r *standing) cells() []string {
	const none = "-"
	cells := []string{r.Strategy, fmt.Sprintf("%.1f", r.Rate), none, none, fmt.Sprintf("%.2f", r.TokensPerPass), none, none, none, none, none, r.Finish}
	if len(r.Ratios) > 0 {
		cells[2] = fmt.Sprintf("%.2f", r.Ratio)
	}
	if len(r.Ratios) > 1 && r.Strategy != plainly.name {
		cells[3] = fmt.Sprintf("%.2f..%.2f", slices.Min(r.Ratios), slices.Max(r.Ratios))
	}
	if r.Rule != "" {
		if len(r.Acceptance) > 0 {
			var shares []string
			for _, a := range r.Acceptance[:min(shownPositions, len(r.Acceptance))] {
				shares = append(shares, strconv.Itoa(int(100*a+0.5)))
			}
			if len(r.Acceptance) > shownPositions {
				shares = append(shares, "...")
			}
			cells[5] = strings.Join(shares, " ")
		}
		for i, seconds := range []float64{r.DraftSeconds, r.VerifySeconds, r.SamplingSeconds} {
			if r.perTokens > 0 {
				cells[6+i] = fmt.Sprintf("%.2f", 1000*seconds/float64(r.perTokens))
			}
		}
	}
	switch {
	case r.Same == nil:
	case *r.Same:
		cells[9] = "yes"
	default:
		cells[9] = fmt.Sprintf("to token %d", *r.DiffersAt)
	}
	return cells
}

// writeTable writes columns of equal width: words to the left, numbers to the
// right.
func writeTable(w io.Writer, rows [][]string, left func(column int) bool) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if i > 0 {
				line += "  "
			}
			if left(i) {
				line += fmt.Sprintf("%-*s", widths[i], cell)
			} else {
				line += fmt.Sprintf("%*s", widths[i], cell)
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// writeStandings writes the table, or as JSON an object for each strategy.
func writeStandings(w io.Writer, table []standing, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		for _, row := range table {
			if err := encoder.Encode(row); err != nil {
				return outputError{err}
			}
		}
		return nil
	}
	rows := [][]string{tableHead}
	for _, row := range table {
		rows = append(rows, row.cells())
	}
	left := func(column int) bool { return column == 0 || column == 5 || column >= 9 }
	if err := writeTable(w, rows, left); err != nil {
		return outputError{err}
	}
	return nil
}

// noteTexts says what it means where a text is not plain's.
func (a *app) noteTexts(o *compareOptions, table []standing) {
	onlyOne := o.greedy() && !o.xtcActs() // so that a distribution is one token
	var free []string
	for _, row := range table {
		switch {
		case row.Same == nil || *row.Same:
		case !row.promised && !onlyOne:
			free = append(free, row.Strategy)
		case o.session.Exact:
			a.note("%s: the text leaves plain's at token %d, which must not be: please report it", row.Strategy, *row.DiffersAt)
		default:
			advice := "; --exact makes them alike where this machine can"
			if mustFind(row.Strategy).tree {
				advice = ""
			}
			a.note("%s: the text leaves plain's at token %d, by rounding: several tokens at once are computed a little otherwise than one%s", row.Strategy, *row.DiffersAt, advice)
		}
	}
	if len(free) > 0 {
		a.note("%s: the rules block and token keep the distribution of the texts, not the text", strings.Join(free, ", "))
	}
}
