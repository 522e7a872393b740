package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
)

const helpHead = `gen generates text from a GGUF model.

  gen -m FILE -p TEXT [flags]     the text goes to standard output, all else to standard error
  gen tokenize -m FILE -p TEXT    the tokens of a text
  gen inspect FILE                metadata and tensors of a GGUF file
  gen quantize IN OUT TYPE        write a model with its weights in another type
  gen compare -m FILE [-p TEXT]   drafting strategies side by side: speed, acceptance, text
  gen draft make -m FILE -o FILE  make a draft model and measure what it is worth
  gen version                     versions, CPU features, backends and devices

Flags are those of llama.cpp where it has the same thing. A value comes from the flag, else from the
environment (the variable in brackets), else from the model's own general.sampling metadata, else it is
the default. Exit status: 0 done, also when the reader of the output has gone; 1 failure; 2 bad usage;
130 interrupted.
`

// generate is the command itself: from the settings to the text.
func (a *app) generate(o *options) error {
	switch {
	case o.help:
		writeHelp(a.stdout, helpHead, o.settings)
		return nil
	case o.version:
		return a.version(false)
	}
	if err := a.begin(o); err != nil {
		return err
	}
	if o.listDevices {
		return a.listDevices()
	}
	if err := o.resolve(); err != nil {
		return err
	}
	a.flush(&o.parser)
	// llama.cpp's threads keep all cores busy: no thread of Go shall be woken
	// just to look for work (measured on 2 cores: 4% of the speed).
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := a.readGrammar(&o.grammar); err != nil {
		return err
	}
	text, err := a.readPrompt(promptSource{
		text: o.prompt, given: o.given("--prompt"), file: o.promptFile, binaryFile: o.binaryFile, escapes: o.escapes,
	})
	if err != nil {
		return err
	}

	start := time.Now()
	m, err := a.openModels(o)
	if err != nil {
		return err
	}
	defer m.close()
	model := m.target
	config, err := o.modelConfig(model)
	if err != nil {
		return err
	}
	if err := m.start(a.ctx, o); err != nil {
		return err
	}
	session := m.session
	a.log.settle(nil)
	loadTime := time.Since(start)

	cache := &promptCache{file: o.cacheFile, all: o.cacheAll, readOnly: o.cacheRead, session: session}
	if err := cache.load(); err != nil {
		return err
	}
	tokens, err := cache.promptTokens(model.Vocab(), text)
	if err != nil {
		return err
	}
	if err := checkLength("prompt", tokens, session.Limits().Context); err != nil {
		return err
	}

	config.PromptLen = len(tokens)
	o.noteContext(session.Limits().Context)
	o.noteIdleSampling(len(config.EndTokens))
	o.noteIdleSpeculation(m.noDrafts, m.noTrees(o))
	o.noteIdleContrast()
	o.noteIdleFlags(model.Facts().SlidingWindow)
	o.noteIdleShow(isTerminal(a.stdout), m.noDrafts)
	a.flush(&o.parser)
	if o.explain {
		if err := o.writeExplanation(a.stderr, config); err != nil {
			return err
		}
	}
	if o.verbosePrompt {
		listTokens(a.stderr, model.Vocab(), tokens)
	}

	var stats generate.Stats
	request := generate.Request{
		Prompt:       tokens,
		MaxTokens:    max(o.predict, 0), // -1 and -2 are no limit: the context is one
		PromptOnly:   o.predict == 0,
		ContextShift: o.contextShift,
		Keep:         o.keepTokens(model.Vocab(), tokens),
		Sampling:     config,
		Seed:         o.seed,
		Stop:         o.stops(),
		IgnoreEOG:    o.ignoreEOS,
		LogProbs:     o.logProbs > 0,
		TopLogProbs:  o.logProbs,
		PostSampling: o.logProbs > 0,
		Stats:        &stats,
	}
	if err := o.combine(&request, model.Vocab(), session.Limits().Context); err != nil {
		return err
	}
	trace, err := openTrace(o, model.Vocab(), &request)
	if err != nil {
		return err
	}
	out := a.newOutput(o, model.Vocab())
	ids, err := a.stream(o, m, cache.held, request, text, out)
	err = errors.Join(err, trace.close())
	if stats.Finish != "" {
		sum := newSummary(stats, loadTime)
		sum.Complete = o.grammar.complete(ids)
		if drafters := m.drafters(o); len(drafters) > 0 {
			sum.Drafts = newDraftSummary(&stats.Drafts, drafters)
		}
		if err == nil && stats.Finish == generate.EndToken {
			err = o.grammar.validate(model.Vocab().Detokenize(ids))
		}
		err = a.finish(o, out, sum, err)
	}
	return errors.Join(err, o.speculation.saveLookupCache(m.lookup), cache.save(append(tokens, ids...), len(tokens)))
}

// begin does what comes before the settings are resolved: the log, whether this
// CPU can run the archive, and devices of other machines.
func (a *app) begin(o *options) error {
	if err := a.log.configure(o); err != nil {
		return err
	}
	if err := checkCPU(llama.Versions()); err != nil {
		return err
	}
	return o.addServers()
}

// stream writes the text of a request as it is generated, and returns its
// tokens. Its sequence holds the tokens held already.
func (a *app) stream(o *options, m *models, held []int32, request generate.Request, text string, out output) ([]int32, error) {
	log := slog.New(a.log)
	v := m.target.Vocab()
	words := generate.Vocab(v)
	if o.special {
		words = vocabWithControl{v}
	}
	engine, err := m.engine(o, words, held, log)
	if err != nil {
		return nil, err
	}
	defer engine.Close()

	if o.displayPrompt {
		if err := out.prompt(text); err != nil {
			return nil, outputError{err}
		}
	}
	log.Debug("evaluating the prompt", "tokens", len(request.Prompt))
	var ids []int32
	for token, err := range engine.Stream(a.ctx, request) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, token.ID)
		if err := out.token(token); err != nil {
			return ids, outputError{err}
		}
	}
	if s := request.Stats; o.special && s.Finish == generate.EndToken {
		piece := v.SpecialPiece(s.EndToken)
		end := generate.Token{ID: s.EndToken, Index: s.Generated, Text: string(piece), Bytes: piece}
		if err := out.token(end); err != nil {
			return ids, outputError{err}
		}
	}
	return ids, nil
}

// finish writes what follows a text that ended with err, and returns the error
// that remains.
func (a *app) finish(o *options, out output, s summary, err error) error {
	switch {
	case isClosedPipe(err):
		s.Finish = "output closed"
	case err != nil && a.ctx.Err() != nil:
		s.Finish = "interrupted"
	case err != nil:
		s.Finish = string(generate.Failed)
	}
	if !isClosedPipe(err) {
		if endErr := out.end(s); endErr != nil {
			err = errors.Join(err, outputError{endErr})
		}
	}
	if text, ok := out.(*textOutput); ok && text.midLine && (o.perf || isTerminal(a.stdout)) {
		fmt.Fprintln(a.stderr) // what follows begins a line, and the text gets no byte more
	}
	if s.Finish == string(generate.ContextFull) {
		a.note("the context is full with %d tokens: -c makes it larger, -n ends a text earlier", s.PromptTokens+s.GeneratedTokens)
	}
	if o.perf && !o.json {
		fmt.Fprintln(a.stderr, s.line())
		if s.Drafts != nil {
			fmt.Fprintln(a.stderr, s.Drafts.line())
		}
		if s.Finish == "interrupted" {
			err = errors.Join(err, errReported)
		}
	}
	return err
}

func (a *app) newOutput(o *options, v *llama.Vocab) output {
	if o.json {
		return newJSONOutput(a.stdout, v, o.logProbs > 0)
	}
	colour := o.color == colorOn || o.color == colorAuto && isTerminal(a.stdout)
	return &textOutput{w: a.stdout, colour: colour, show: colour && o.show}
}

// vocabWithControl writes control tokens out.
type vocabWithControl struct{ *llama.Vocab }

func (v vocabWithControl) Piece(id int32) []byte { return v.SpecialPiece(id) }

// listTokens writes one line for each token.
func listTokens(w io.Writer, v *llama.Vocab, tokens []int32) {
	for _, id := range tokens {
		fmt.Fprintf(w, "%7d  %q\n", id, v.SpecialPiece(id))
	}
}
