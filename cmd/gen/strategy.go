package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/speculative"
)

// A strategy is a way to generate a text: plain, or with drafts.
type strategy struct {
	name string
	who  string // of drafterTypes, in their order, separated by commas
	rule speculative.Rule
	tree bool // the draft model's drafts are trees, of --spec-draft-widths
}

// types are those that draft.
func (s strategy) types() []string {
	if s.who == "" {
		return nil
	}
	return strings.Split(s.who, ",")
}

// needsModel reports whether a draft model drafts.
func (s strategy) needsModel() bool { return slices.Contains(s.types(), drafterModel) }

var plainly = strategy{name: "plain"}

// strategies holds all of them, in the order of tables. Without a drafter that
// draws from distributions the rules are all the same.
var strategies = []strategy{
	plainly,
	{name: "draft", who: drafterModel},
	{name: "draft-block", who: drafterModel, rule: speculative.Block},
	{name: "draft-token", who: drafterModel, rule: speculative.Token},
	{name: "tree", who: drafterModel, tree: true},
	{name: "ngram", who: drafterNGram},
	{name: "cascade", who: both},
	{name: "cascade-block", who: both, rule: speculative.Block},
	{name: "cascade-token", who: both, rule: speculative.Token},
	{name: "lookahead", who: drafterLookahead},
}

const both = drafterNGram + "," + drafterModel

// defaultStrategies are those that are run without a choice.
func defaultStrategies(draftModel, trees bool) []strategy {
	names := []string{"plain", "draft", "tree", "ngram", "cascade"}
	var chosen []strategy
	for _, name := range names {
		if s := mustFind(name); (draftModel || !s.needsModel()) && (trees || !s.tree) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func findStrategy(name string) (strategy, bool) {
	i := slices.IndexFunc(strategies, func(s strategy) bool { return s.name == name })
	if i < 0 {
		return strategy{}, false
	}
	return strategies[i], true
}

func mustFind(name string) strategy {
	s, ok := findStrategy(name)
	if !ok {
		panic("gen: no strategy is called " + name)
	}
	return s
}

func strategyNames() string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// parseStrategies reads names separated by commas; "all" is every one, those
// with trees where there are any.
func parseStrategies(text string, trees bool) ([]strategy, error) {
	if text == "all" {
		return slices.DeleteFunc(slices.Clone(strategies), func(s strategy) bool { return s.tree && !trees }), nil
	}
	var chosen []strategy
	for name := range strings.SplitSeq(text, ",") {
		s, ok := findStrategy(strings.TrimSpace(name))
		if !ok || slices.Contains(chosen, s) {
			return nil, fmt.Errorf("want all, or each at most once of %s, separated by commas", strategyNames())
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}
