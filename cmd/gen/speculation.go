package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/speculative"
)

// speculationOptions say who drafts, how much, and which rule judges the drafts.
type speculationOptions struct {
	types       []string // of drafterTypes, in their order; none for no drafts
	rule        speculative.Rule
	adaptive    bool
	most, least int // tokens of a draft
	pMin        float64
	widths      []int // tokens proposed at each position; none for lines

	model                 string // the draft model
	load                  llama.ModelOptions
	devices               []string
	threads, batchThreads int // -1 for the target's
	keyType, valueType    llama.TensorType

	shortest, longest, filler int // contexts and likely tokens of the n-grams
	static, dynamic           string
}

// drafterTypes are what --spec-type takes, in the order in which a cascade asks
// them: what costs nothing comes first.
var drafterTypes = []string{drafterNGram, drafterModel, drafterLookahead}

const (
	drafterNGram     = "ngram"
	drafterModel     = "draft"
	drafterLookahead = "lookahead"
)

// What package speculative takes at most.
const (
	largestDraft   = 64
	largestContext = 32
	largestFiller  = 8
)

// otherDrafters are llama.cpp's names, and what does the same here.
var otherDrafters = map[string]string{
	"draft-simple": drafterModel,
	"ngram-simple": drafterNGram, "ngram-map-k": drafterNGram, "ngram-map-k4v": drafterNGram,
	"ngram-mod": drafterNGram, "ngram-cache": drafterNGram,
}

func defaultSpeculation() speculationOptions {
	return speculationOptions{adaptive: true, most: 16, threads: -1, batchThreads: -1, shortest: 1, longest: 8}
}

// The flags that only one kind of drafter hears of.
var (
	draftModelFlags = []string{"--spec-draft-model", "--spec-draft-p-min", "--spec-draft-widths", "--spec-draft-ngl", "--spec-draft-device",
		"--spec-draft-threads", "--spec-draft-threads-batch", "--spec-draft-type-k", "--spec-draft-type-v"}
	ngramFlags = []string{"--spec-ngram-context-min", "--spec-ngram-context-max", "--spec-ngram-filler",
		"--lookup-cache-static", "--lookup-cache-dynamic"}
)

// speculationSettings lists the flags for drafts.
func (o *options) speculationSettings() []*setting {
	s := &o.speculation
	types := &setting{names: "--spec-type", arg: "A,B,...", env: "LLAMA_ARG_SPEC_TYPE", value: drafterTypesValue(o),
		usage: "who drafts: ngram (what followed the last words before), draft (the draft model), both (ngram,draft: whichever is " +
			"expected to gain more), lookahead (the model itself), none; with --spec-draft-model it is draft"}
	most := &setting{names: "--spec-draft-n-max", arg: "N", env: "LLAMA_ARG_SPEC_DRAFT_N_MAX",
		value: intValue(&s.most, 1, largestDraft, "1 to 64 tokens"),
		usage: "length of a draft at most, in tokens"}
	least := &setting{names: "--spec-draft-n-min", arg: "N", env: "LLAMA_ARG_SPEC_DRAFT_N_MIN",
		value: intValue(&s.least, 0, largestDraft, "0 (off) to 64 tokens"),
		usage: "draft as many tokens or none; 0 = off"}
	shortest := &setting{names: "--spec-ngram-context-min", arg: "N", value: intValue(&s.shortest, 1, largestContext, "1 to 32 tokens"),
		usage: "as many last tokens must have stood before, for an n-gram draft"}
	settings := []*setting{
		{names: "-md, --spec-draft-model, --model-draft", arg: "FILE", env: "LLAMA_ARG_SPEC_DRAFT_MODEL", value: fileValue(&s.model),
			usage: "a small model with the same vocabulary drafts, and the model judges the whole draft at once"},
		types,
		{names: "--spec-rule", arg: "RULE",
			value: choiceValue(&s.rule, choice[speculative.Rule]{"coupled", speculative.Coupled},
				choice[speculative.Rule]{"block", speculative.Block}, choice[speculative.Rule]{"token", speculative.Token}),
			usage: "which drafts stand: coupled (the text is that without drafts), block or token (it has the same distribution)"},
		{names: "--spec-adaptive", arg: "on|off", value: switchValue(&s.adaptive, true),
			usage: "draft as much as pays by what was measured, and nothing where none does; off = always --spec-draft-n-max tokens"},
		most, least,
		{names: "--spec-draft-p-min, --draft-p-min", arg: "P", env: "LLAMA_ARG_SPEC_DRAFT_P_MIN", value: floatValue(&s.pMin, 0, 1, "0 (off) to 1"),
			usage: "end a draft where the draft model gives no token that probability; 0 = off"},
		{names: "--spec-draft-widths", arg: "N,N,...", value: widthsValue(&s.widths),
			usage: "make the draft model's drafts trees: so many tokens at the first position, at the second and so on, one at those behind; " +
				"it goes on behind the first of them; default: lines"},
		{names: "-ngld, --spec-draft-ngl, --gpu-layers-draft, --n-gpu-layers-draft", arg: "N", env: "LLAMA_ARG_N_GPU_LAYERS_DRAFT", value: gpuLayersValue(&s.load),
			usage: "layers of the draft model to keep on the GPUs: a number, auto or all; 0 = none"},
		{names: "-devd, --spec-draft-device, --device-draft", arg: "A,B,...",
			value: listValue(&s.devices, commaList("want names as in --list-devices, or none"), func(s string) string { return s }),
			usage: "devices for the draft model; none = CPU only; default: as --device"},
		{names: "-td, --spec-draft-threads, --threads-draft", arg: "N", value: threadsValue(&s.threads),
			usage: "threads to draft with; -1 = as --threads"},
		{names: "-tbd, --spec-draft-threads-batch, --threads-batch-draft", arg: "N", value: threadsValue(&s.batchThreads),
			usage: "threads for the draft model to read a prompt with; -1 = as --spec-draft-threads, or without it as --threads-batch"},
		{names: "-ctkd, --spec-draft-type-k, --cache-type-k-draft", arg: "TYPE", env: "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", value: tensorTypeValue(&s.keyType, "auto"),
			usage: "type of the keys in the draft model's KV cache, as --cache-type-k; auto = q8_0 on a CPU where the model allows it, which is faster, else f16"},
		{names: "-ctvd, --spec-draft-type-v, --cache-type-v-draft", arg: "TYPE", env: "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", value: tensorTypeValue(&s.valueType, "f16"),
			usage: "type of its values, as --cache-type-v"},
		shortest,
		{names: "--spec-ngram-context-max", arg: "N", value: intValue(&s.longest, 1, largestContext, "1 to 32 tokens"),
			usage: "look for at most so many last tokens"},
		{names: "--spec-ngram-filler", arg: "N", value: intValue(&s.filler, 0, largestFiller, "0 (off) to 8 tokens"),
			usage: "where nothing stood before, draft from the N tokens that the model found most likely after the same one or two; 0 = off"},
		{names: "-lcs, --lookup-cache-static", arg: "FILE", value: fileValue(&s.static),
			usage: "n-grams of earlier texts, from a file that -lcd has written; it is left as it is"},
		{names: "-lcd, --lookup-cache-dynamic", arg: "FILE", value: fileValue(&s.dynamic),
			usage: "the same, and this text is added to the file, which is made where it is missing"},

		{names: "--draft, --draft-n, --draft-max", arg: "N", of: most, convert: same, notice: true},
		{names: "--draft-min, --draft-n-min", arg: "N", of: least, convert: same, notice: true},
		{names: "--spec-default", of: types, convert: always(drafterNGram), notice: true},
		{names: "--spec-ngram-size-n, --spec-ngram-simple-size-n, --spec-ngram-map-k-size-n, --spec-ngram-map-k4v-size-n, --spec-ngram-mod-n-match",
			arg: "N", of: shortest, convert: same, notice: true},
		{names: "--spec-ngram-size-m, --spec-ngram-simple-size-m, --spec-ngram-map-k-size-m, --spec-ngram-map-k4v-size-m, --spec-ngram-mod-n-max",
			arg: "N", of: most, convert: same, notice: true},
		{names: "--spec-ngram-mod-n-min", arg: "N", of: least, convert: same, notice: true},
		{names: "--spec-ngram-min-hits, --spec-ngram-simple-min-hits, --spec-ngram-map-k-min-hits, --spec-ngram-map-k4v-min-hits",
			arg: "N", value: refusedValue("not here: an n-gram counts by how often its like came true; leave it out")},
		{names: "--spec-draft-p-split, --draft-p-split", arg: "P", value: refusedValue("not here: --spec-draft-widths says where drafts branch; leave it out")},
		{names: "-cd, --ctx-size-draft", arg: "N", value: refusedValue("not here: the draft model has the context of the model; leave it out")},
	}
	for _, x := range settings {
		if x.usage != "" {
			x.group = groupSpeculation
		}
	}
	return settings
}

func same(text string) (string, error) { return text, nil }

// refusedValue is that of a flag of llama.cpp that gen cannot follow.
func refusedValue(why string) value {
	return value{set: func(string) error { return errors.New(why) }, get: func() string { return "" }}
}

func drafterTypesValue(o *options) value {
	s := &o.speculation
	return value{
		set: func(text string) error {
			wanted := map[string]bool{}
			items := strings.Split(text, ",")
			for _, item := range items {
				name := item
				if here, ok := otherDrafters[item]; ok {
					o.notef("--spec-type %s: gen calls it %s", item, here)
					name = here
				}
				if !slices.Contains(drafterTypes, name) && (name != "none" || len(items) > 1) {
					return fmt.Errorf("want none, or of %s, separated by commas", strings.Join(drafterTypes, ", "))
				}
				wanted[name] = true
			}
			s.types = nil
			for _, name := range drafterTypes {
				if wanted[name] {
					s.types = append(s.types, name)
				}
			}
			return nil
		},
		get: func() string {
			if len(s.types) == 0 {
				return "none"
			}
			return strings.Join(s.types, ",")
		},
	}
}

// widthsValue is a list of numbers. They are tokens of one draft, so that their
// sum is bounded.
func widthsValue(p *[]int) value {
	return value{
		set: func(text string) error {
			var widths []int
			sum := 0
			for item := range strings.SplitSeq(text, ",") {
				n, err := strconv.Atoi(item)
				if err != nil || n < 1 || n > largestDraft-sum {
					return fmt.Errorf("want tokens at each position, 1 or more, separated by commas, %d together at most", largestDraft)
				}
				widths = append(widths, n)
				sum += n
			}
			*p = widths
			return nil
		},
		get: func() string {
			var items []string
			for _, n := range *p {
				items = append(items, strconv.Itoa(n))
			}
			return strings.Join(items, ",")
		},
	}
}

// wide returns how many tokens stand at the positions that have a width.
func (s *speculationOptions) wide() int {
	tokens := 0
	for _, n := range s.widths {
		tokens += n
	}
	return tokens
}

// branches returns in how many ways besides the first a draft goes on.
func (s *speculationOptions) branches() int {
	return speculative.ModelOptions{Widths: s.widths}.Branches()
}

// noTrees says why a draft model's drafts are lines, or is empty where they are
// trees.
func (o *options) noTrees() string {
	s := &o.speculation
	switch {
	case len(s.widths) == 0:
		return "without --spec-draft-widths"
	case s.branches() == 0:
		return "with one token at each position, which is a line"
	case len(o.contrast.amateurs) > 0:
		return "with --cd-model, where drafts are lines"
	case o.guided():
		return "with --guidance-scale, where drafts are lines"
	case s.rule != speculative.Coupled && o.greedy() && !o.xtcActs():
		return fmt.Sprintf("at temperature 0 with --spec-rule %s, which leaves one token to draw", s.rule)
	}
	return ""
}

// drafts reports whether a drafter is in use.
func (s *speculationOptions) drafts(name string) bool { return slices.Contains(s.types, name) }

// resolveSpeculation works out who drafts, and refuses what does not go together.
func (o *options) resolveSpeculation() error {
	s := &o.speculation
	if types := o.find("--spec-type"); s.model != "" && types.source == fromDefault {
		s.types = []string{drafterModel}
		types.note = "by --spec-draft-model"
	}
	switch {
	case s.drafts(drafterModel) && s.model == "":
		return badUsage("--spec-type %s: it needs a draft model, with -md FILE", o.find("--spec-type").get())
	case s.least > s.most:
		return badUsage("--spec-draft-n-min %d: want at most --spec-draft-n-max, which is %d", s.least, s.most)
	case s.static != "" && s.dynamic != "":
		return badUsage("-lcs and -lcd: give one of them")
	}
	if s.shortest > s.longest {
		if o.given("--spec-ngram-context-max") {
			return badUsage("--spec-ngram-context-min %d: want at most --spec-ngram-context-max, which is %d", s.shortest, s.longest)
		}
		s.longest = s.shortest
		o.find("--spec-ngram-context-max").note = "at least --spec-ngram-context-min"
	}
	if s.batchThreads < 0 {
		s.batchThreads = s.threads
		o.find("--spec-draft-threads-batch").note = "-1: as --spec-draft-threads"
		if s.threads < 0 {
			s.batchThreads = o.batchThreads
			o.find("--spec-draft-threads-batch").note = "-1: as --threads-batch"
		}
	}
	if s.threads < 0 {
		s.threads = o.threads
		o.find("--spec-draft-threads").note = "-1: as --threads"
	}
	if err := o.resolveRoom(); err != nil {
		return err
	}
	return o.checkWidths()
}

// checkWidths refuses trees that do not go with the other settings.
func (o *options) checkWidths() error {
	s := &o.speculation
	switch tokens := s.wide(); {
	case tokens > s.most:
		return badUsage("--spec-draft-widths %s: %d tokens together: want at most --spec-draft-n-max, which is %d",
			o.find("--spec-draft-widths").get(), tokens, s.most)
	case o.session.Exact && s.drafts(drafterModel) && o.noTrees() == "":
		return badUsage("--spec-draft-widths and --exact: a tree leaves the cache in an order of its own, in which sums are rounded otherwise: give one of them")
	}
	return nil
}

// resolveRoom bounds the drafts by what a batch holds: of each sequence that
// judges them, the last token and the draft.
func (o *options) resolveRoom() error {
	s := &o.speculation
	o.session.Sequences = 1
	if o.guided() {
		o.session.Sequences = 2 // what follows the negative prompt is one of its own
	}
	batch, sequences := o.session.Batch, o.session.Sequences
	if batch < sequences {
		return badUsage("--batch-size %d: guidance needs %d", batch, sequences)
	}
	if len(s.types) == 0 {
		return nil
	}
	if room := batch/sequences - 1; s.most > room {
		if s.least > room || room < 1 {
			return badUsage("--batch-size %d: it has room for drafts of %d tokens", batch, room)
		}
		if o.given("--spec-draft-n-max") {
			o.notef("--spec-draft-n-max %d becomes %d: a batch holds %d tokens", s.most, room, batch)
		}
		s.most = room
		o.find("--spec-draft-n-max").note = "what a batch holds"
	}
	o.session.Outputs = min(batch, max(sequences*(s.most+1), sequences+32))
	return nil
}

// noteIdleSpeculation names the flags for drafts that change nothing. because is
// why there are none although they were asked for, or empty; noTrees is why there
// are drafts and no trees.
func (o *options) noteIdleSpeculation(because, noTrees string) {
	s := &o.speculation
	switch {
	case o.predict == 0:
		because = "with -n 0"
	case because == "" && len(s.types) == 0:
		because = "without --spec-type or --spec-draft-model, which say who drafts"
		if o.given("--spec-type") {
			because = "with --spec-type none"
		}
	}
	if because != "" {
		for _, x := range o.settings {
			if x.group == groupSpeculation && x.of == nil && (x.name() != "--spec-type" || x.get() != "none") {
				o.noteIdle(x.name(), because)
			}
		}
		return
	}
	if !s.drafts(drafterModel) {
		for _, flag := range draftModelFlags {
			o.noteIdle(flag, "without draft in --spec-type")
		}
		o.noteIdle("--spec-rule", "without a draft model: all rules judge certain proposals alike")
	} else {
		if s.rule != speculative.Coupled && o.greedy() && !o.xtcActs() {
			o.noteIdle("--spec-rule", "at temperature 0, where all rules are one")
		}
		if noTrees != "" {
			o.noteIdle("--spec-draft-widths", noTrees)
		}
	}
	if !s.drafts(drafterNGram) {
		for _, flag := range ngramFlags {
			o.noteIdle(flag, "without ngram in --spec-type")
		}
	}
}

// noteIdleShow says why --show shows nothing. Standard output may be a terminal;
// noDrafts is as for noteIdleSpeculation.
func (o *options) noteIdleShow(terminal bool, noDrafts string) {
	switch {
	case o.predict == 0:
		o.noteIdle("--show", "with -n 0")
	case noDrafts != "":
		o.noteIdle("--show", noDrafts)
	case len(o.speculation.types) == 0:
		o.noteIdle("--show", "without drafts")
	case o.json:
		o.noteIdle("--show", "with --json")
	case o.color == colorOff:
		o.noteIdle("--show", "with --color off")
	case o.color == colorAuto && !terminal:
		o.noteIdle("--show", "where the text goes to no terminal: --color on colours in any case")
	}
}
