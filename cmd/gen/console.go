package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/sampler"
)

// A console compares strategies on one prompt after another. Lines that begin
// with a slash change settings, which hold from then on.
type console struct {
	*app
	o *compareOptions
	c *comparison

	commands []consoleCommand
	chosen   []strategy
	debug    bool
	warm     []strategy // those that have generated already
	failed   int        // lines that could not be carried out
	quit     bool
}

const consoleHint = "a prompt, or a command: /help lists them, /quit ends\n"

// console reads prompts and commands until the input ends. Where it is a
// terminal lines can be edited.
func (a *app) console(o *compareOptions, c *comparison) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	o.noteIdle("--repeat", "without a prompt on the command line: each is run once")
	o.noteIdle("--show", "without a prompt on the command line: texts are shown as they come")
	a.flush(&o.parser)

	// The first interrupt has ended the context of main, whatever it was for.
	// Here one ends a text; the console has a context of its own.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	var end context.CancelFunc
	a.ctx, end = context.WithCancel(context.WithoutCancel(a.ctx))
	// Not called on the way out: the exit status asks whether it was.
	_ = end

	lines, err := a.lines()
	if err != nil {
		return err
	}
	defer lines.close()
	s := &console{app: a, o: o, c: c, chosen: slices.Clone(o.chosen())}
	s.commands = s.table()
	if lines.edited {
		fmt.Fprint(a.stderr, consoleHint)
	}
	return s.loop(lines, signals, end)
}

// loop carries out line after line. Two interrupts in a row end it, as the end
// of the input does.
func (s *console) loop(lines *lineReader, signals chan os.Signal, end context.CancelFunc) error {
	interrupts := 0
	interrupt := func() error {
		if interrupts++; interrupts == 2 {
			end()
			return errReported
		}
		fmt.Fprintln(s.stderr, "(once more, or Ctrl-D, ends gen)")
		return nil
	}
	for !s.quit {
		lines.ask()
		var read lineRead
		select {
		case read = <-lines.read:
			lines.taken()
		case signal := <-signals:
			if signal != os.Interrupt {
				end()
				return s.ctx.Err()
			}
			if err := interrupt(); err != nil {
				return err
			}
			continue
		}
		switch {
		case errors.Is(read.err, errLineInterrupted):
			if err := interrupt(); err != nil {
				return err
			}
			continue
		case errors.Is(read.err, io.EOF):
			return s.end(lines)
		case read.err != nil:
			return fmt.Errorf("standard input: %w", withoutPath(read.err))
		}
		interrupts = 0
		if err := s.line(read.text, signals, end); err != nil {
			return err
		}
	}
	return s.end(lines)
}

// end is what the session comes to: a script wants to know of lines that failed.
func (s *console) end(lines *lineReader) error {
	if lines.edited || s.failed == 0 {
		return nil
	}
	noun := "lines"
	if s.failed == 1 {
		noun = "line"
	}
	return fmt.Errorf("%d %s of standard input could not be carried out", s.failed, noun)
}

// line carries out one line. What it returns ends the session: the reader of the
// output has gone, or gen is to end.
func (s *console) line(text string, signals chan os.Signal, end context.CancelFunc) error {
	text = strings.TrimRight(text, "\r\n")
	var err error
	switch name, isCommand := strings.CutPrefix(text, "/"); {
	case !utf8.ValidString(text):
		err = errors.New("the line is not UTF-8")
	case strings.TrimSpace(text) == "":
		return nil
	case isCommand && !strings.HasPrefix(name, "/"):
		err = s.command(name)
	default:
		if isCommand {
			text = name
		}
		err = s.prompt(text, signals, end)
	}
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil || errors.As(err, &outputError{}):
		return err
	}
	s.failed++
	s.log.settle(err)
	s.complain(err)
	return nil
}

// prompt runs the strategies on a prompt.
func (s *console) prompt(text string, signals chan os.Signal, end context.CancelFunc) error {
	if len(s.chosen) == 0 {
		return errors.New("nothing is on that could generate: /target, /speculative, /ngram or /strategies change that")
	}
	if s.o.escapes {
		text = unescape(text)
	}
	request, err := s.o.request(s.c, text)
	if err != nil {
		return err
	}
	ctx, stop := s.interruptible(signals, end)
	defer stop()
	if err := s.warmUp(ctx, request); err != nil {
		return s.interrupted(ctx, err)
	}
	out := s.newShowOutput(s.o)
	see := out.token
	if s.o.json {
		see = func(generate.Token) error { return nil }
	}
	var done []strategy
	var texts [][]generation
	for _, x := range s.chosen {
		if !s.o.json {
			out.begin(x)
		}
		g, err := s.c.run(ctx, x, request, see)
		if !s.o.json {
			err = errors.Join(err, out.end())
		}
		if s.debug {
			s.explain(x, g)
		}
		if err != nil {
			return s.interrupted(ctx, err)
		}
		done, texts = append(done, x), append(texts, []generation{g})
	}
	table := standings(done, texts)
	if err := writeStandings(s.stdout, table, s.o.json); err != nil {
		return err
	}
	s.noteTexts(s.o, table)
	fmt.Fprintf(s.stderr, "prompt: %d tokens; seed: %d\n", len(request.Prompt), s.o.seed)
	return nil
}

// interruptible returns a context that an interrupt ends; any other signal ends
// the session with it.
func (s *console) interruptible(signals chan os.Signal, end context.CancelFunc) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case signal := <-signals:
			if signal != os.Interrupt {
				end()
			}
			cancel()
		case <-over:
		}
	}()
	return ctx, func() {
		close(over)
		<-watched
		cancel()
	}
}

// interrupted is the error of a text: none where the user ended it.
func (s *console) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil && !errors.As(err, &outputError{}) {
		s.log.drop()
		fmt.Fprintln(s.stderr, "gen: interrupted")
		return nil
	}
	return err
}

// warmUp lets strategies that have not run yet generate a little: what is used
// for the first time is slow.
func (s *console) warmUp(ctx context.Context, request generate.Request) error {
	cold := slices.DeleteFunc(slices.Clone(s.chosen), func(x strategy) bool { return slices.Contains(s.warm, x) })
	if len(cold) == 0 {
		return nil
	}
	keep, stores := s.c.keep, s.c.stores
	s.c.keep, s.c.stores = false, nil
	defer func() { s.c.keep, s.c.stores = keep, stores }()
	request.MaxTokens = 4
	for _, x := range cold {
		if _, err := s.c.run(ctx, x, request, func(generate.Token) error { return nil }); err != nil {
			return err
		}
		s.warm = append(s.warm, x)
	}
	return s.c.forget()
}

// explain lists the tokens of a text with where they come from, and what its
// rounds came to.
func (s *console) explain(x strategy, g generation) {
	for _, t := range g.tokens {
		from := "plain"
		switch {
		case t.Drafted:
			from = "drafted"
		case t.Corrected:
			from = "corrected"
		}
		fmt.Fprintf(s.stderr, "%5d %7d  %-9s  %q\n", t.Index, t.ID, from, t.Bytes)
	}
	d := &g.stats.Drafts
	fmt.Fprintf(s.stderr, "%s: %d tokens, %d of the prompt from the cache; %d passes, %d with a draft\n", x.name, g.stats.Generated, g.stats.Cached, d.Rounds, d.Drafts)
}

// processor makes the sampling settings those of one of the usual names.
func (s *console) processor(args []string) error {
	if len(args) == 0 {
		return errors.New("want a name: " + processorNames())
	}
	i := slices.IndexFunc(processors, func(p processor) bool { return p.name == args[0] })
	if i < 0 {
		return fmt.Errorf("%s: want %s", args[0], processorNames())
	}
	p := processors[i]
	if len(args)-1 != len(p.flags) {
		return fmt.Errorf("want %s", p.usage())
	}
	// Tried on a copy: a bad value leaves all as it is.
	trial := newOptions()
	for j, flag := range p.flags {
		if err := trial.find(flag).set(args[j+1]); err != nil {
			return fmt.Errorf("%s %s: %w", flag, args[j+1], err)
		}
	}
	old := s.o.sampling
	c := old
	for _, f := range filters {
		if f.off != nil {
			f.off(&c)
		}
	}
	c.Mirostat, c.Temperature = 0, 0
	for _, flag := range p.flags {
		switch flag {
		case "--temp":
			c.Temperature = trial.sampling.Temperature
		case "--top-k":
			c.TopK = trial.sampling.TopK
		case "--top-p":
			c.TopP = trial.sampling.TopP
		}
	}
	samplers := s.o.samplers
	s.o.sampling, s.o.samplers = c, []string{"top_k", "top_p", "temperature"}
	config, err := s.o.samplerConfig(s.c.target.Vocab())
	var chain *sampler.Sampler
	if err == nil {
		chain, err = sampler.New(config)
	}
	if err != nil {
		s.o.sampling, s.o.samplers = old, samplers
		return err
	}
	fmt.Fprintf(s.stderr, "the filters that run: %v\n", chain)
	return nil
}

// A processor is a way to choose tokens by its usual name, with the flags that
// its numbers are.
type processor struct {
	name  string
	flags []string
}

var processors = []processor{
	{"greedy", nil},
	{"multinomial", []string{"--temp"}},
	{"topk", []string{"--temp", "--top-k"}},
	{"nucleus", []string{"--temp", "--top-p"}},
	{"topknucleus", []string{"--temp", "--top-k", "--top-p"}},
}

func (p processor) usage() string {
	usage := p.name
	for _, flag := range p.flags {
		usage += " " + map[string]string{"--temp": "T", "--top-k": "K", "--top-p": "P"}[flag]
	}
	return usage
}

func processorNames() string {
	var names []string
	for _, p := range processors {
		names = append(names, p.usage())
	}
	return strings.Join(names, ", ")
}
