// Command spec measures speculative decoding: sortes with several drafters
// beside itself without, and beside llama.cpp's own tools, on the same files and
// prompts, in turn.
//
//	go run ./bench/spec -target models/a-F16.gguf -draft models/a-Q4_0.gguf
//
// Rates are tokens a second from the last token of the prompt on, with the
// prompt in the caches of target and draft: what llama.cpp's tools call decoding.
// It fails nothing: it reports. make bench-spec builds what it needs and runs it.
//
// By default it measures what the README's table needs, which takes some twenty
// minutes: not the sides that are marked extra below, and llama.cpp's n-gram
// drafts at temperature 0 alone, for prompts that are copied from. -sides all
// measures everything.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/bench/internal/measure"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/speculative"
)

func main() {
	b := bench{lengths: map[string]int{}}
	flag.StringVar(&b.target, "target", "", "the model, a GGUF file")
	flag.StringVar(&b.draft, "draft", "", "the draft model")
	flag.StringVar(&b.tools.folder, "tools", "third_party/tools/ours/bin", "where build.sh put llama.cpp's programs; empty leaves them out")
	flag.StringVar(&b.out, "out", "bench/out", "where a layer-pruned draft is made")
	flag.StringVar(&b.record, "record", "", "a file that measurements are appended to; those in it count in the report")
	flag.IntVar(&b.rounds, "rounds", 5, "measurements of each text; at temperatures above 0 each with a seed of its own")
	flag.IntVar(&b.tokens, "tokens", 64, "tokens of a text at most")
	flag.IntVar(&b.prompts, "prompts", 1, fmt.Sprintf("prompts of each kind, up to %d", perKind))
	flag.IntVar(&b.threads, "threads", llama.DefaultThreads(), "compute threads of each side")
	flag.BoolVar(&b.exact, "exact", false, "our sides in exact mode")
	flag.BoolVar(&b.lookahead, "lookahead", false, "measure lookahead, too")
	named := flag.String("kinds", strings.Join(kinds, ","), "kinds of prompts")
	temperatures := flag.String("temps", "0,0.8", "temperatures, with the default filters")
	only := flag.String("sides", "", "sides to measure besides plain, by name, such as draft,draft-cold,lookup; all means all. "+
		"Without it these are left out: cold and pruned drafts, adaptive trees, the rules block and token, "+
		"and the tools' n-gram drafts at temperatures above 0 and for prompts that little is copied from")
	widths := flag.String("widths", "2", "tokens at each position of the drafts that are trees: N,N,...; empty leaves them out, as -exact does")
	lengths := flag.String("lengths", "", "draft lengths that need not be looked for: side=n,...")
	profile := flag.String("cpuprofile", "", "write a profile of this process to a file")
	flag.Parse()
	b.tools.target, b.tools.draft, b.tools.threads, b.tools.tokens = b.target, b.draft, b.threads, b.tokens

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := b.configure(*named, *temperatures, *only, *lengths, *widths)
	if err == nil && *profile != "" {
		var f *os.File
		if f, err = os.Create(*profile); err == nil {
			defer f.Close()
			err = pprof.StartCPUProfile(f)
			defer pprof.StopCPUProfile()
		}
	}
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
	}
}

// A bench is what is asked for.
type bench struct {
	target, draft, out, record       string
	rounds, tokens, prompts, threads int
	exact, lookahead                 bool
	texts                            []prompt
	temperatures                     []float64
	only                             []string
	widths                           []int          // of trees, none for no trees
	lengths                          map[string]int // by side
	tools                            tools
}

func (b *bench) configure(named, temperatures, only, lengths, widths string) (err error) {
	if b.texts, err = readPrompts(b.prompts, strings.Split(named, ",")); err != nil {
		return err
	}
	for s := range strings.SplitSeq(temperatures, ",") {
		t, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("temperature %q: %w", s, err)
		}
		b.temperatures = append(b.temperatures, t)
	}
	if only != "" {
		b.only = strings.Split(only, ",")
	}
	for s := range strings.SplitSeq(lengths, ",") {
		if s == "" {
			continue
		}
		name, value, _ := strings.Cut(s, "=")
		if b.lengths[name], err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("length %q: %w", s, err)
		}
	}
	if widths == "" || b.exact { // what a tree leaves of the cache is not exact
		return nil
	}
	for s := range strings.SplitSeq(widths, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("width %q: want 1 or more tokens", s)
		}
		b.widths = append(b.widths, n)
	}
	return nil
}

func (b *bench) run(ctx context.Context) error {
	fmt.Printf("%s; %s; %d threads; %d tokens; medians of %d, all sides in turn\n",
		measure.CPU(), time.Now().Format("2006-01-02"), b.threads, b.tokens, b.rounds)
	fmt.Printf("target %s, draft %s; exact mode: %v\n", filepath.Base(b.target), filepath.Base(b.draft), b.exact)
	o, err := openOurs(ctx, b.target, b.threads, b.tokens, b.exact, b.widths)
	if err != nil {
		return err
	}
	defer o.close()
	for i := range b.texts {
		b.texts[i].tokens, err = o.vocab.Tokenize(b.texts[i].text, llama.TokenizeOptions{AddSpecial: true, ParseSpecial: true})
		if err != nil {
			return err
		}
		if n := len(b.texts[i].tokens); n+b.tokens > contextSize {
			return fmt.Errorf("prompt %d of %s has %d tokens: no room for %d more in %d", b.texts[i].number, b.texts[i].kind, n, b.tokens, contextSize)
		}
	}
	// As gen does: the runtime's threads that look for work take a core from
	// the compute threads.
	runtime.GOMAXPROCS(1)
	if err := b.costs(ctx, o); err != nil {
		return err
	}
	sides, err := b.sides()
	if err != nil {
		return err
	}
	r, err := openRecord(b.record)
	if err != nil {
		return err
	}
	defer r.close()
	start := time.Now()
	for i, temperature := range b.temperatures {
		competitors := b.competitors(ctx, o, sides, temperature)
		if err := b.findLengths(competitors, temperature); err != nil {
			return err
		}
		for j, p := range b.texts {
			fmt.Fprintf(os.Stderr, "text %d of %d, %s at temperature %g, after %v\n",
				i*len(b.texts)+j+1, len(b.temperatures)*len(b.texts), p.kind, temperature, time.Since(start).Round(time.Second))
			if err := b.measureText(r, competitors, p, temperature); err != nil {
				return err
			}
		}
		var names []string
		for _, c := range competitors {
			names = append(names, c.name)
		}
		report(os.Stdout, r.of(temperature, b.exact), names)
	}
	return nil
}

// costs prints what can be gained at all: how an evaluation grows with its rows,
// and what a token of the draft costs beside one of the target.
func (b *bench) costs(ctx context.Context, o *ours) error {
	if _, err := o.draft(ctx, b.draft, speculative.Coupled, nil); err != nil {
		return err
	}
	const depth, most = 256, 16
	target, err := growth(ctx, o.target, 1, depth, most, 9, measure.Median)
	if err != nil {
		return err
	}
	draft, err := growth(ctx, o.sessions[len(o.sessions)-1], 1, depth, 1, 9, measure.Median)
	if err != nil {
		return err
	}
	fmt.Printf("\nan evaluation of n rows at depth %d, relative to one:", depth)
	for n, t := range target {
		fmt.Printf(" %d: %.2f", n+1, t/target[0])
	}
	fmt.Printf("\na token of the draft, relative to one of the target: %.2f (%.1f and %.1f ms)\n", draft[0]/target[0], 1e3*draft[0], 1e3*target[0])
	return nil
}

var (
	draftLengths = []int{3, 1, 2, 4, 6}
	ngramLengths = []int{7, 3, 15}
)

// sides returns our ways to generate, the plain one first.
func (b *bench) sides() ([]*side, error) {
	pruned := filepath.Join(b.out, "pruned.gguf")
	all := []*side{
		{name: "plain"},
		{name: "draft", models: []string{b.draft}},
		{name: "draft, cold", models: []string{b.draft}, cold: true, extra: true},
		{name: "draft, fixed", models: []string{b.draft}, fixed: true, lengths: draftLengths},
		{name: "block, fixed", models: []string{b.draft}, fixed: true, rule: speculative.Block, lengths: draftLengths, extra: true},
		{name: "token, fixed", models: []string{b.draft}, fixed: true, rule: speculative.Token, lengths: draftLengths, extra: true},
		{name: "ngram", ngram: true},
		{name: "ngram, fixed", ngram: true, fixed: true, lengths: ngramLengths},
		{name: "cascade", ngram: true, models: []string{b.draft}},
		{name: "cascade, cold", ngram: true, models: []string{b.draft}, cold: true, extra: true},
		{name: "pruned", models: []string{pruned}, extra: true},
	}
	if len(b.widths) > 0 {
		all = append(all,
			&side{name: "tree", models: []string{b.draft}, tree: true, extra: true},
			&side{name: "tree, fixed", models: []string{b.draft}, tree: true, fixed: true, lengths: b.treeLengths()})
	}
	if b.lookahead {
		all = append(all, &side{name: "lookahead, ours", look: true})
	}
	all = slices.DeleteFunc(all, func(s *side) bool { return !s.plain() && !b.asks(s.name) && (s.extra || len(b.only) > 0) })
	if slices.ContainsFunc(all, func(s *side) bool { return s.name == "pruned" }) {
		if err := makePruned(b.target, pruned); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// asks reports whether -sides names a side or tool.
func (b *bench) asks(name string) bool {
	return slices.Contains(b.only, "all") || slices.Contains(b.only, strings.ReplaceAll(name, ", ", "-"))
}

// treeLengths are those of trees that have all their widths, and up to three
// tokens behind them.
func (b *bench) treeLengths() []int {
	tokens := 0
	for _, n := range b.widths {
		tokens += n
	}
	return []int{tokens, tokens + 1, tokens + 2, tokens + 3}
}

// makePruned makes a draft of the target, with every third layer left out but
// for the first and the last few.
func makePruned(target, out string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	var layers []int
	for l := 4; l < 28; l += 3 {
		layers = append(layers, l)
	}
	return llama.Quantize(context.Background(), target, out, "Q4_0", llama.QuantizeOptions{PruneLayers: layers, AllowRequantize: true})
}

// A competitor is one of the sides or tools, at one temperature.
type competitor struct {
	name    string
	lengths []int // to choose from, none where there is no choice
	length  int
	ngram   bool
	kinds   []string // of prompts
	run     func(p prompt, seed uint64, n int) (measurement, []int32, error)
}

func (b *bench) competitors(ctx context.Context, o *ours, sides []*side, temperature float64) []*competitor {
	var all []*competitor
	for _, s := range sides {
		if (s.rule != speculative.Coupled) && temperature == 0 {
			continue // all rules are the same
		}
		all = append(all, &competitor{s.name, s.lengths, 0, s.ngram, kinds, func(p prompt, seed uint64, n int) (measurement, []int32, error) {
			return o.run(ctx, s, n, p, temperature, seed)
		}})
	}
	if b.tools.folder == "" {
		return all
	}
	peers := slices.Clone(allTools)
	if b.lookahead {
		peers = append(peers, lookaheadTool)
	}
	for _, t := range peers {
		asked, on := b.asks(t.name), kinds
		if len(b.only) > 0 && !asked || t.ngram() && temperature > 0 && !asked {
			continue
		}
		if t.ngram() && !asked {
			on = copying
		}
		all = append(all, &competitor{t.name, t.lengths, 0, t.ngram(), on, func(p prompt, seed uint64, n int) (measurement, []int32, error) {
			m, err := b.tools.run(ctx, t, n, p, temperature, seed)
			return m, nil, err
		}})
	}
	return all
}

// findLengths gives each competitor the draft length with the highest geometric
// mean of rates, over two texts that suit it.
func (b *bench) findLengths(all []*competitor, temperature float64) error {
	for _, c := range all {
		if len(c.lengths) == 0 {
			continue
		}
		if n, ok := b.lengths[strings.ReplaceAll(c.name, ", ", "-")]; ok {
			c.length = n
			continue
		}
		suits := []string{"edit", "chat"}
		if c.ngram {
			suits = []string{"copy", "extraction"}
		}
		fmt.Printf("\n%s at temperature %g, tokens a second by draft length:", c.name, temperature)
		best := 0.0
		for _, n := range slices.Sorted(slices.Values(c.lengths)) {
			var rates []float64
			for _, p := range b.texts {
				if p.number > 0 || !slices.Contains(suits, p.kind) {
					continue
				}
				m, _, err := c.run(p, 1, n)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				rates = append(rates, m.rate())
			}
			mean := measure.GeometricMean(rates)
			fmt.Printf(" %d: %.1f", n, mean)
			if mean > best || c.length == 0 {
				best, c.length = mean, n
			}
		}
	}
	fmt.Println()
	return nil
}

// measureText lets all write a text, round by round. Who begins changes with the
// rounds.
func (b *bench) measureText(r *record, all []*competitor, p prompt, temperature float64) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c *competitor) bool { return !slices.Contains(c.kinds, p.kind) })
	for round := range b.rounds {
		seed := uint64(round + 1)
		done := make([]measurement, len(all))
		texts := make([][]int32, len(all))
		for i := range all {
			i = (i + round) % len(all)
			c := all[i]
			m, text, err := c.run(p, seed, c.length)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			m.Side, m.Kind, m.Number, m.Round = c.name, p.kind, p.number, round
			m.Temperature, m.Exact = temperature, b.exact
			done[i], texts[i] = m, text
		}
		for i := range done {
			if texts[i] != nil {
				done[i].Same = slices.Equal(texts[i], texts[0])
			}
			if err := r.add(done[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
