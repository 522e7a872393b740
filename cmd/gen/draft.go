package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// calibrationText is what a draft is measured on without --text.
//
//go:embed calibration.txt
var calibrationText string

// makeOptions are the settings of gen draft make.
type makeOptions struct {
	*options
	out      string
	fileType string
	keep     []layers
	text     string // a file
}

// layers are those from first to last.
type layers struct{ first, last int }

// draftCommand makes gen draft, which has one command of its own.
func (a *app) draftCommand() *cli.Command {
	o := &makeOptions{options: newOptions()}
	p := parser{}
	for _, name := range []string{"--model", "--gpu-layers", "--device", "--threads"} {
		p.settings = append(p.settings, o.find(name))
	}
	p.settings = append(p.settings,
		&setting{names: "-o, --output", arg: "FILE", group: "draft", value: fileValue(&o.out), usage: "the draft model to write"},
		&setting{names: "--type", arg: "TYPE", group: "draft", value: nonEmpty(&o.fileType, "want a type"), usage: "type of its weights: " + strings.Join(llama.FileTypes(), ", ")},
		&setting{names: "--keep-layers", arg: "A-B,C,...", group: "draft", value: listValue(&o.keep, parseLayerRanges, layers.String),
			usage: "keep these layers only, counted from 0; what is left has not been trained, and drafts badly"},
		&setting{names: "--text", arg: "FILE", group: "draft", value: fileValue(&o.text), usage: "the text to measure it on; default: one that gen has"},
		&setting{names: "--json", group: "draft", value: switchValue(&o.json, true), usage: "write the measurements as a JSON object"},
	)
	make := subcommand("draft make", "make a draft model of a model's own weights, and measure what it is worth here", "-m FILE -o FILE --type TYPE", &p, a, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("%q: unknown argument; the draft model follows -o", c.Args().First())
		}
		a.flush(&p)
		return a.makeDraft(o)
	})
	make.Name = "make"

	var around parser
	draft := subcommand("draft", make.Usage+"; gen draft make -h lists its flags", "make "+make.ArgsUsage, &around, a, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("draft %s: want make; gen draft make -h lists its flags", c.Args().First())
		}
		return badUsage("draft: want make, as in gen draft make -m FILE -o FILE --type q4_0; gen draft make -h lists its flags")
	})
	draft.Subcommands = []*cli.Command{make}
	return draft
}

// makeDraft writes the draft model and measures it.
func (a *app) makeDraft(o *makeOptions) error {
	switch {
	case o.model == "":
		return badUsage("no model: give the target, a GGUF file, with -m FILE")
	case o.out == "":
		return badUsage("no output: give the draft model to write with -o FILE")
	case o.fileType == "":
		return badUsage("no type: give that of the draft's weights with --type TYPE, such as q4_0")
	case !slices.Contains(llama.FileTypes(), strings.ToUpper(o.fileType)):
		return badUsage("--type %s: want one of %s", o.fileType, strings.Join(llama.FileTypes(), ", "))
	}
	if err := checkCPU(llama.Versions()); err != nil {
		return err
	}
	if err := o.resolve(); err != nil {
		return err
	}
	a.flush(&o.parser)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	text := calibrationText
	if o.text != "" {
		var err error
		if text, err = a.readPrompt(promptSource{file: o.text, verbatim: true}); err != nil {
			return err
		}
	}
	target, err := a.open("-m", o.model, o.load)
	if err != nil {
		return err
	}
	defer target.Close()
	pruned, err := o.pruned(target.Facts().Layers)
	if err != nil {
		return err
	}
	tokens, err := calibrationTokens(target, text)
	if err != nil {
		return err
	}
	if isOneOf(target.Files(), o.out) {
		return badUsage("-o %s: it is the model itself, which the draft must not overwrite", o.out)
	}
	draft, err := a.writeDraft(o, pruned)
	if err != nil {
		return err
	}
	defer draft.Close()
	a.log.settle(nil)
	measure, err := a.measureDraft(o, target, draft, tokens)
	if err != nil {
		return fmt.Errorf("%s is written and not measured: %w", o.out, err)
	}
	return a.reportDraft(o, target, draft, measure, len(pruned) > 0)
}

// pruned returns the layers to leave out of so many.
func (o *makeOptions) pruned(count int) ([]int, error) {
	if len(o.keep) == 0 {
		return nil, nil
	}
	var out []int
	for i := range count {
		if !slices.ContainsFunc(o.keep, func(l layers) bool { return i >= l.first && i <= l.last }) {
			out = append(out, i)
		}
	}
	for _, l := range o.keep {
		if l.last >= count {
			return nil, badUsage("--keep-layers %v: the model has %d layers, 0 to %d", l, count, count-1)
		}
	}
	return out, nil
}

// Tokens of a calibration text: with few the measurements say little, and more
// only take longer.
const (
	leastCalibration = 64
	mostCalibration  = 4096
)

func calibrationTokens(m *llama.Model, text string) ([]int32, error) {
	tokens, err := promptTokens(m.Vocab(), text)
	if err != nil {
		return nil, err
	}
	tokens = tokens[:min(len(tokens), mostCalibration, max(leastCalibration, m.Facts().TrainContext-largestMeasured))]
	if len(tokens) < leastCalibration {
		return nil, badUsage("--text: it has %d tokens: want at least %d", len(tokens), leastCalibration)
	}
	return tokens, nil
}

func isOneOf(files []string, name string) bool {
	b, err := os.Stat(name)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(file string) bool {
		a, err := os.Stat(file)
		return err == nil && os.SameFile(a, b)
	})
}

// writeDraft makes the draft model and opens it. Its file gets its name only
// when llama.cpp can read it.
func (a *app) writeDraft(o *makeOptions, pruned []int) (_ *llama.Model, err error) {
	temporary := o.out + ".new"
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(temporary))
		}
	}()
	slog.New(a.log).Debug("writing the draft model", "file", temporary)
	// What is quantised already may be quantised again: a draft decides no text.
	err = a.quantize(o.model, temporary, o.fileType, llama.QuantizeOptions{AllowRequantize: true, PruneLayers: pruned, Threads: o.threads})
	if err != nil {
		return nil, err
	}
	m, err := a.open("-o", temporary, o.load)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, o.out); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", o.out, renameError(err))
	}
	return m, nil
}

func renameError(err error) error {
	if link := (*os.LinkError)(nil); errors.As(err, &link) {
		return link.Err
	}
	return err
}

func removeIfThere(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// temperatures are those that acceptance is measured at.
var temperatures = []float64{0, 0.8}

// measureDraft measures a draft model beside its target: both with the same
// threads, as they draft.
func (a *app) measureDraft(o *makeOptions, target, draft *llama.Model, tokens []int32) (*draftMeasure, error) {
	pool, err := llama.NewPool(o.session.Threads)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	const chunk = 64
	options := llama.SessionOptions{Context: len(tokens) + largestMeasured, Batch: chunk, Outputs: chunk, Pool: pool}
	t, err := target.NewSession(options)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	d, err := newDraftSession(a.ctx, draft, options)
	if err != nil {
		return nil, err
	}
	defer d.Close()

	var chains []sampler.Config
	for _, temperature := range temperatures {
		c := sampler.Default()
		c.Temperature = temperature
		chains = append(chains, c)
	}
	shares, err := measureAcceptance(a.ctx, t, d, tokens, min(chunk, t.Limits().Batch, d.Limits().Batch), chains)
	if err != nil {
		return nil, err
	}
	m := &draftMeasure{Tokens: len(tokens)}
	m.DraftCost, m.RowCosts, err = measureCosts(a.ctx, t, d, tokens[len(tokens)-1])
	if err != nil {
		return nil, err
	}
	for i, share := range shares {
		x := acceptance{Temperature: temperatures[i], Share: share}
		x.Length, x.Speed = m.best(share)
		m.Acceptance = append(m.Acceptance, x)
	}
	return m, nil
}

// pays is the speed from which a draft is worth its while.
const pays = 1.02

// reportDraft writes what was measured.
func (a *app) reportDraft(o *makeOptions, target, draft *llama.Model, m *draftMeasure, pruned bool) error {
	if o.json {
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return a.write(append(line, '\n'))
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: %s, %d of %d layers, %.1f MB; the target has %.1f MB\n", filepath.Base(o.out), strings.ToUpper(o.fileType),
		draft.Facts().Layers, target.Facts().Layers, float64(draft.Facts().Bytes)/1e6, float64(target.Facts().Bytes)/1e6)
	m.write(&out, pruned)
	return a.write(out.Bytes())
}

func (m *draftMeasure) write(w io.Writer, pruned bool) {
	fmt.Fprintf(w, "a step of the draft takes %.2f of one of the target\n", m.DraftCost)
	fmt.Fprintf(w, "the target with 1 to %d rows takes", len(m.RowCosts))
	for _, r := range m.RowCosts {
		fmt.Fprintf(w, " %.2f", r)
	}
	fmt.Fprintf(w, " of a step\n")
	fastest := 0.0
	for _, x := range m.Acceptance {
		fmt.Fprintf(w, "temperature %g: the draft agrees at %.0f%% of %d tokens, which allows %.2f times the speed, with drafts of %d\n", x.Temperature, 100*x.Share, m.Tokens, x.Speed, x.Length)
		fastest = max(fastest, x.Speed)
	}
	if fastest >= pays {
		return
	}
	switch _, perfect := m.best(1); {
	case perfect < pays:
		fmt.Fprintln(w, "It is of no use here: it costs too much beside the target, however often it agrees.")
	case pruned:
		fmt.Fprintln(w, "It is of no use here: it agrees too seldom, as models do whose layers were left out without training the others again.")
	default:
		fmt.Fprintln(w, "It is of no use here: it agrees too seldom.")
	}
}

func (l layers) String() string {
	if l.first == l.last {
		return strconv.Itoa(l.first)
	}
	return fmt.Sprintf("%d-%d", l.first, l.last)
}

// parseLayerRanges reads a list such as 0-7,29.
func parseLayerRanges(text string) ([]layers, error) {
	bad := errors.New("want layers or ranges of them, from 0, separated by commas, such as 0-7,29")
	var all []layers
	for item := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > math.MaxInt16 {
			return nil, bad
		}
		all = append(all, layers{a, b})
	}
	return all, nil
}
