package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/generate"
)

// compareOptions are the settings of a comparison besides those of the text.
type compareOptions struct {
	*options
	strategies string // their names; empty for the default
	repeat     int
}

const groupComparison = "comparison"

// notCompared are the flags of gen that gen compare does without.
var notCompared = []string{
	"--list-devices", "--special", "--display-prompt", "--verbose-prompt", "--logprobs", "--trace", "--explain", "--perf", "--help", "--version",
	"--keep", "--context-shift", "--prompt-cache", "--prompt-cache-all", "--prompt-cache-ro",
	"--spec-type", "--spec-rule", "--lookup-cache-dynamic", // --strategies says what is compared, and from where all start
}

// compareCommand makes gen compare.
func (a *app) compareCommand() *cli.Command {
	o := &compareOptions{options: newOptions(), repeat: 5}
	o.predict = 128
	o.settings = append(o.settings,
		&setting{names: "--strategies", arg: "A,B,...", group: groupComparison, value: strategiesValue(&o.strategies),
			usage: "what to compare: all, or some of " + strategyNames() + "; default: plain, ngram, and with a draft model draft and cascade, and tree with --spec-draft-widths"},
		&setting{names: "--repeat", arg: "N", group: groupComparison, value: intValue(&o.repeat, 1, 1000, "1 to 1000"),
			usage: "how often each generates the text, in turn"},
	)
	o.find("--show").usage = "write the text of each strategy before the table; in colours drafted tokens that stood are green, what stands in place of one that fell is red"
	o.find("--color").usage = "colours in --show; auto = on a terminal"
	o.find("--json").usage = "a JSON object for each strategy in place of the table"
	p := parser{}
	for _, s := range o.settings {
		if !slices.Contains(notCompared, s.name()) && (s.of == nil || !slices.Contains(notCompared, s.of.name())) {
			p.settings = append(p.settings, s)
		}
	}
	return subcommand("compare", "one prompt under several strategies, side by side", "-m FILE [-md FILE] [-p TEXT]", &p, a, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("%q: the prompt follows -p", c.Args().First())
		}
		a.flush(&p)
		return a.compare(o)
	})
}

func strategiesValue(p *string) value {
	v := textValue(p)
	v.set = func(text string) error {
		if _, err := parseStrategies(text, true); err != nil {
			return err
		}
		*p = text
		return nil
	}
	return v
}

// compare runs a comparison, or without a prompt a console for many.
func (a *app) compare(o *compareOptions) error {
	if err := a.begin(o.options); err != nil {
		return err
	}
	if err := o.resolveComparison(); err != nil {
		return err
	}
	a.flush(&o.parser)
	// As in generate: no thread of Go shall take a core from the compute threads.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := a.readGrammar(&o.grammar); err != nil {
		return err
	}
	hasPrompt := o.given("--prompt") || o.promptFile != "" || o.binaryFile != ""
	text := ""
	if hasPrompt {
		var err error
		text, err = a.readPrompt(promptSource{
			text: o.prompt, given: o.given("--prompt"), file: o.promptFile, binaryFile: o.binaryFile, escapes: o.escapes,
		})
		if err != nil {
			return err
		}
	}

	m, err := a.openModels(o.options)
	if err != nil {
		return err
	}
	defer m.close()
	if m.noDrafts != "" {
		return fmt.Errorf("there are no drafts to compare %s", m.noDrafts)
	}
	c := &comparison{models: m, o: o, log: slog.New(a.log)}
	config, err := o.modelConfig(m.target)
	if err != nil {
		return err
	}
	if err := m.start(a.ctx, o.options); err != nil {
		return err
	}
	a.log.settle(nil)
	o.noteContext(m.session.Limits().Context)
	o.noteIdleSampling(len(config.EndTokens))
	o.noteIdleContrast()
	noTrees := m.noTrees(o.options)
	if hasPrompt && noTrees == "" && !slices.ContainsFunc(o.chosen(), func(s strategy) bool { return s.tree }) {
		noTrees = "without tree in --strategies"
	}
	o.noteIdleComparison(m.target.Facts().SlidingWindow, noTrees)
	a.flush(&o.parser)
	if !hasPrompt {
		return a.console(o, c)
	}
	request, err := o.request(c, text)
	if err != nil {
		return err
	}
	return a.comparePrompt(o, c, request)
}

// resolveComparison works out what is compared, and resolves the rest for it.
func (o *compareOptions) resolveComparison() error {
	if o.predict == 0 {
		return badUsage("--predict 0: want 1 or more tokens, -1 or -2: without any there is nothing to compare")
	}
	var types []string
	for _, s := range o.chosen() {
		if s.needsModel() && o.speculation.model == "" {
			return badUsage("--strategies %s: it drafts with a model: give one with -md FILE", s.name)
		}
		if because := o.noTrees(); s.tree && because != "" {
			return badUsage("--strategies %s: there are no trees %s", s.name, because)
		}
		types = append(types, s.types()...)
	}
	kinds := o.find("--spec-type")
	if len(types) > 0 {
		if err := kinds.set(strings.Join(types, ",")); err != nil {
			return err
		}
	}
	kinds.source = fromEnvironment // it is not for -md to say
	if err := o.resolve(); err != nil {
		return err
	}
	o.session.Outputs = min(o.session.Batch, o.session.Sequences*(largestDraft+1)) // /gamma may ask for more
	return nil
}

// chosen returns the strategies to compare.
func (o *compareOptions) chosen() []strategy {
	trees := o.noTrees() == ""
	if o.strategies == "" {
		return defaultStrategies(o.speculation.model != "", trees)
	}
	chosen, _ := parseStrategies(o.strategies, trees) // without an error when the flag was read
	return chosen
}

// noteIdleComparison names the flags other than those for sampling that change
// nothing. noTrees is why no drafts are trees, or empty.
func (o *compareOptions) noteIdleComparison(window int, noTrees string) {
	o.noteIdleBasics(window)
	if !o.speculation.drafts(drafterModel) {
		for _, flag := range draftModelFlags {
			o.noteIdle(flag, "without draft or cascade in --strategies")
		}
	} else if noTrees != "" {
		o.noteIdle("--spec-draft-widths", noTrees)
	}
	if !o.speculation.drafts(drafterNGram) {
		for _, flag := range ngramFlags {
			o.noteIdle(flag, "without ngram or cascade in --strategies")
		}
	}
	if o.json {
		o.noteIdle("--show", "with --json, which has the texts")
	}
	if o.json || !o.show {
		o.noteIdle("--color", "without --show")
	}
}

// request makes the request that all strategies get.
func (o *compareOptions) request(c *comparison, text string) (generate.Request, error) {
	vocab := c.target.Vocab()
	tokens, err := promptTokens(vocab, text)
	if err != nil {
		return generate.Request{}, err
	}
	limit := c.session.Limits().Context
	if err := checkLength("prompt", tokens, limit); err != nil {
		return generate.Request{}, err
	}
	config, err := o.constrainedConfig(vocab)
	if err != nil {
		return generate.Request{}, err
	}
	config.PromptLen = len(tokens)
	request := generate.Request{
		Prompt: tokens, MaxTokens: max(o.predict, 0), Sampling: config, Seed: o.seed, Stop: o.stops(), IgnoreEOG: o.ignoreEOS,
	}
	return request, o.combine(&request, vocab, limit)
}

// warmUp is how many tokens a strategy generates before it counts: what is used
// for the first time is slow.
const warmUp = 16

// comparePrompt runs all strategies in turn, as often as asked, and writes what
// came of it. When it is interrupted it writes the repetitions that are whole.
func (a *app) comparePrompt(o *compareOptions, c *comparison, request generate.Request) error {
	all := o.chosen()
	texts := make([][]generation, len(all))
	whole, err := a.repeat(o, c, all, request, texts)
	if whole == 0 {
		return err
	}
	for i := range texts {
		texts[i] = texts[i][:whole]
	}
	table := standings(all, texts)
	if o.show && !o.json {
		for i, s := range all {
			if err := a.showText(o, s, texts[i][0]); err != nil {
				return err
			}
		}
	}
	if err := writeStandings(a.stdout, table, o.json); err != nil {
		return err
	}
	a.noteTexts(o, table)
	repetitions := "repetitions"
	if whole == 1 {
		repetitions = "repetition"
	}
	fmt.Fprintf(a.stderr, "prompt: %d tokens; at most %s tokens generated; %d %s; seed: %d\n", len(request.Prompt), o.find("--predict").get(), whole, repetitions, o.seed)
	if err != nil && a.ctx.Err() != nil {
		fmt.Fprintf(a.stderr, "gen: interrupted after %d of %d repetitions\n", whole, o.repeat)
		return errors.Join(err, errReported)
	}
	return err
}

// repeat fills in the texts by strategy and repetition, and returns how many
// repetitions are whole.
func (a *app) repeat(o *compareOptions, c *comparison, all []strategy, request generate.Request, texts [][]generation) (whole int, err error) {
	ignore := func(generate.Token) error { return nil }
	step := a.progress((o.repeat+1)*len(all), "comparing")
	defer step(true)
	warm := request
	if warm.MaxTokens = warmUp; request.MaxTokens > 0 {
		warm.MaxTokens = min(warmUp, request.MaxTokens)
	}
	for _, s := range all {
		if _, err := c.run(a.ctx, s, warm, ignore); err != nil {
			return 0, err
		}
		step(false)
	}
	for ; whole < o.repeat; whole++ {
		for i := range all {
			i = (i + whole) % len(all) // none is always the first
			g, err := c.run(a.ctx, all[i], request, ignore)
			if err != nil {
				return whole, err
			}
			texts[i] = append(texts[i], g)
			step(false)
		}
	}
	return whole, nil
}

// progress shows a bar of so many steps where standard error is a terminal. What
// it returns makes a step, or ends the bar.
func (a *app) progress(steps int, what string) (step func(end bool)) {
	if !isTerminal(a.stderr) {
		return func(bool) {}
	}
	bar := a.newBar(steps, what)
	return func(end bool) {
		if end {
			_ = bar.Finish()
		} else {
			_ = bar.Add(1)
		}
	}
}

// showText writes the text of a strategy under its name.
func (a *app) showText(o *compareOptions, s strategy, g generation) error {
	w := a.newShowOutput(o)
	w.begin(s)
	for _, t := range g.tokens {
		if err := w.token(t); err != nil {
			return err
		}
	}
	return w.end()
}

// A showOutput writes texts token by token, in colours by how they came.
type showOutput struct {
	text textOutput
	err  error
}

func (a *app) newShowOutput(o *compareOptions) *showOutput {
	colour := o.color == colorOn || o.color == colorAuto && isTerminal(a.stdout)
	return &showOutput{text: textOutput{w: a.stdout, colour: colour, show: colour}}
}

func (w *showOutput) write(text, colour string) {
	if !w.text.show {
		colour = ""
	}
	if err := w.text.write(text, colour); err != nil && w.err == nil {
		w.err = outputError{err}
	}
}

// begin writes the heading of a text.
func (w *showOutput) begin(s strategy) {
	w.write(s.name, bold)
	if w.text.show && s != plainly {
		w.write(" (", "")
		w.write("drafted", green)
		w.write(", ", "")
		w.write("corrected", red)
		w.write(", plain)", "")
	}
	w.write(":\n", "")
}

const bold = "\x1b[1m"

func (w *showOutput) token(t generate.Token) error {
	if err := w.text.token(t); err != nil && w.err == nil {
		w.err = outputError{err}
	}
	return w.err
}

// end ends the text, and leaves a line empty.
func (w *showOutput) end() error {
	if w.text.midLine {
		w.write("\n", "")
	}
	w.write("\n", "")
	return w.err
}
