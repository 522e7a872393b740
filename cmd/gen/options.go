package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// options are the settings of one text, as plain values.
type options struct {
	parser

	model   string
	load    llama.ModelOptions
	session llama.SessionOptions
	devices []string // the names of -dev; "none" for no device
	loras   []lora
	rpc     []string

	threads, batchThreads int // -1 for the default

	prompt       string
	promptFile   string
	binaryFile   string
	escapes      bool
	predict      int
	reverse      []string
	ignoreEOS    bool
	grammar      grammarOptions
	keep         int
	contextShift bool
	cacheFile    string
	cacheAll     bool
	cacheRead    bool

	seed     uint64 // meaningless while random is set
	random   bool
	samplers []string
	sampling sampler.Config
	breakers []string // texts; escapes in them are not replaced yet

	speculation speculationOptions
	contrast    contrastOptions

	special       bool
	displayPrompt bool
	show          bool
	verbosePrompt bool
	color         colorMode
	json          bool
	logProbs      int
	traceFile     string
	perf          bool
	verbosity     int
	logFile       string
	logDisable    bool

	explain     bool
	help        bool
	version     bool
	listDevices bool
}

// A lora is an adapter to load and its scale.
type lora struct {
	file  string
	scale float64
}

type colorMode int

const (
	colorAuto colorMode = iota
	colorOn
	colorOff
)

// Headings of -h, in its order.
const (
	groupModel       = "model"
	groupGeneration  = "generation"
	groupSampling    = "sampling"
	groupSpeculation = "speculation"
	groupContrast    = "contrastive decoding and guidance"
	groupOutput      = "output"
)

// newOptions returns llama.cpp's defaults with the table of flags that changes
// them.
func newOptions() *options {
	o := &options{
		session:      llama.SessionOptions{Batch: 2048, Microbatch: 512},
		threads:      -1,
		batchThreads: -1,
		escapes:      true,
		predict:      -1,
		random:       true,
		samplers:     defaultSamplers(),
		sampling:     defaultSampling(),
		breakers:     slices.Clone(defaultBreakers),
		speculation:  defaultSpeculation(),
		contrast:     defaultContrast(),
		perf:         true,
		verbosity:    logWarnings,
	}
	o.settings = o.table()
	return o
}

// table lists the flags, in the order of -h.
func (o *options) table() []*setting {
	const anyInt = math.MaxInt32
	loadMode := &setting{
		names: "-lm, --load-mode", arg: "MODE", env: "LLAMA_ARG_LOAD_MODE", group: groupModel,
		value: choiceValue(&o.load.LoadMode,
			choice[llama.LoadMode]{"auto", llama.LoadAuto}, choice[llama.LoadMode]{"none", llama.LoadRead},
			choice[llama.LoadMode]{"mmap", llama.LoadMmap}, choice[llama.LoadMode]{"mlock", llama.LoadMlock},
			choice[llama.LoadMode]{"mmap+mlock", llama.LoadMmapMlock}, choice[llama.LoadMode]{"dio", llama.LoadDirectIO}),
		usage: "how weights come into memory: auto, none (read), mmap, mlock (read and pin), mmap+mlock, dio (past the page cache)",
	}

	return slices.Concat([]*setting{
		// Model.
		{names: "-m, --model", arg: "FILE", env: "LLAMA_ARG_MODEL", group: groupModel, value: fileValue(&o.model),
			usage: "the model, a GGUF file; of a split one the first part"},
		{names: "-c, --ctx-size", arg: "N", env: "LLAMA_ARG_CTX_SIZE", group: groupModel,
			value: intValue(&o.session.Context, 0, anyInt, "0 (from the model) to 2147483647 tokens"),
			usage: "size of the context in tokens, in steps of 256; 0 = what the model was trained on"},
		{names: "-b, --batch-size", arg: "N", env: "LLAMA_ARG_BATCH", group: groupModel,
			value: intValue(&o.session.Batch, 1, 1<<20, "1 to 1048576"),
			usage: "largest batch in tokens"},
		{names: "-ub, --ubatch-size", arg: "N", env: "LLAMA_ARG_UBATCH", group: groupModel,
			value: intValue(&o.session.Microbatch, 1, 1<<20, "1 to 1048576"),
			usage: "tokens of the prompt that are evaluated at once, at most the batch size"},
		{names: "-t, --threads", arg: "N", env: "LLAMA_ARG_THREADS", group: groupModel, value: threadsValue(&o.threads),
			usage: "threads to compute one token with; -1 = one a core"},
		{names: "-tb, --threads-batch", arg: "N", group: groupModel, value: threadsValue(&o.batchThreads),
			usage: "threads to read a prompt with; -1 = as --threads"},
		{names: "-ngl, --gpu-layers, --n-gpu-layers", arg: "N", env: "LLAMA_ARG_N_GPU_LAYERS", group: groupModel, value: gpuLayersValue(&o.load),
			usage: "layers to keep on the GPUs: a number, auto or all; 0 = none"},
		{names: "-dev, --device", arg: "A,B,...", env: "LLAMA_ARG_DEVICE", group: groupModel,
			value: listValue(&o.devices, commaList("want names as in --list-devices, or none"), func(s string) string { return s }),
			usage: "devices to use, by the names of --list-devices; none = CPU only; default: all"},
		{names: "--list-devices", group: groupModel, value: switchValue(&o.listDevices, true),
			usage: "list the devices and end"},
		{names: "-sm, --split-mode", arg: "MODE", env: "LLAMA_ARG_SPLIT_MODE", group: groupModel,
			value: choiceValue(&o.load.SplitMode,
				choice[llama.SplitMode]{"none", llama.SplitNone}, choice[llama.SplitMode]{"layer", llama.SplitLayers},
				choice[llama.SplitMode]{"row", llama.SplitRows}, choice[llama.SplitMode]{"tensor", llama.SplitTensors}),
			usage: "how several GPUs share the model: none (one GPU), layer, row, tensor"},
		{names: "-ts, --tensor-split", arg: "A,B,...", env: "LLAMA_ARG_TENSOR_SPLIT", group: groupModel,
			value: listValue(&o.load.TensorSplit, parseSplit, func(x float32) string { return fmt.Sprint(x) }),
			usage: "share of the model for each GPU, such as 3,1; default: by free memory"},
		{names: "-mg, --main-gpu", arg: "N", env: "LLAMA_ARG_MAIN_GPU", group: groupModel,
			value: intValue(&o.load.MainGPU, 0, 15, "0 to 15"),
			usage: "the GPU that -sm none uses"},
		{names: "--rpc", arg: "A,B,...", env: "LLAMA_ARG_RPC", group: groupModel,
			value: listValue(&o.rpc, commaList("want host:port"), func(s string) string { return s }),
			usage: "servers (host:port) whose devices are used too; on trusted networks only"},
		loadMode,
		{names: "-fa, --flash-attn", arg: "on|off|auto", env: "LLAMA_ARG_FLASH_ATTN", group: groupModel,
			value: onOffAuto(&o.session.FlashAttention, llama.FlashOn, llama.FlashOff, llama.FlashAuto),
			usage: "fused attention kernel"},
		{names: "-ctk, --cache-type-k", arg: "TYPE", env: "LLAMA_ARG_CACHE_TYPE_K", group: groupModel, value: tensorTypeValue(&o.session.KeyType, "f16"),
			usage: "type of the keys in the KV cache: f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl"},
		{names: "-ctv, --cache-type-v", arg: "TYPE", env: "LLAMA_ARG_CACHE_TYPE_V", group: groupModel, value: tensorTypeValue(&o.session.ValueType, "f16"),
			usage: "type of the values, likewise; quantised ones need flash attention"},
		{names: "-kvo, --kv-offload", off: "-nkvo, --no-kv-offload", env: "LLAMA_ARG_KV_OFFLOAD", group: groupModel, value: switchValue(&o.session.CacheOnHost, false),
			usage: "keep the KV cache on the GPU"},
		{names: "--swa-full", env: "LLAMA_ARG_SWA_FULL", group: groupModel, value: switchValue(&o.session.FullSWA, true),
			usage: "keep all of a sliding-window cache"},
		{names: "--repack", off: "-nr, --no-repack", env: "LLAMA_ARG_REPACK", group: groupModel, value: switchValue(&o.load.NoRepack, false),
			usage: "lay weights out for this CPU: faster, and more memory"},
		{names: "--rope-freq-base", arg: "N", env: "LLAMA_ARG_ROPE_FREQ_BASE", group: groupModel,
			value: floatValue(&o.session.RopeFreqBase, 0, math.MaxFloat32, "0 (from the model) or a positive number"),
			usage: "RoPE base frequency; 0 = from the model"},
		{names: "--rope-freq-scale", arg: "N", env: "LLAMA_ARG_ROPE_FREQ_SCALE", group: groupModel,
			value: floatValue(&o.session.RopeFreqScale, 0, math.MaxFloat32, "0 (from the model) or a positive number"),
			usage: "RoPE frequency scale; 0 = from the model"},
		{names: "--override-kv", arg: "KEY=TYPE:VALUE,...", group: groupModel, value: overridesValue(&o.load.Overrides),
			usage: "replace metadata of the model; types int, float, bool, str"},
		{names: "--check-tensors", group: groupModel, value: switchValue(&o.load.CheckData, true),
			usage: "look for invalid values in all weights while loading"},
		{names: "--lora", arg: "FILE,...", group: groupModel, value: listValue(&o.loras, parseLoras, lora.String),
			usage: "add a LoRA adapter"},
		{names: "--lora-scaled", arg: "FILE:SCALE,...", group: groupModel, value: listValue(&o.loras, parseScaledLoras, lora.String),
			usage: "add a LoRA adapter at a scale"},

		// Generation.
		{names: "-p, --prompt", arg: "TEXT", group: groupGeneration, value: textValue(&o.prompt),
			usage: "the prompt; without one of -p, -f and -bf it is read from standard input, where that is no terminal"},
		{names: "-f, --file", arg: "FILE", group: groupGeneration, value: fileValue(&o.promptFile),
			usage: "read the prompt from a file; one newline at its end is dropped"},
		{names: "-bf, --binary-file", arg: "FILE", group: groupGeneration, value: fileValue(&o.binaryFile),
			usage: "read the prompt from a file as it is, also if it is not UTF-8"},
		{names: "-e, --escape", off: "--no-escape", group: groupGeneration, value: switchValue(&o.escapes, true),
			usage: `replace \n, \r, \t, \', \", \\ and \xHH in -p and -r`},
		{names: "-n, --predict, --n-predict", arg: "N", env: "LLAMA_ARG_N_PREDICT", group: groupGeneration,
			value: intValue(&o.predict, -2, anyInt, "-1 (no limit), -2 (until the context is full), or 0 and more"),
			usage: "most tokens to generate; -1 = no limit, -2 = until the context is full, 0 = only evaluate the prompt"},
		{names: "-r, --reverse-prompt", arg: "TEXT", group: groupGeneration, value: reverseValue(&o.reverse),
			usage: "end before this text is generated; may be given several times"},
		{names: "--ignore-eos", group: groupGeneration, value: switchValue(&o.ignoreEOS, true),
			usage: "never choose an end token"},
		{names: "--grammar", arg: "GBNF", group: groupGeneration, value: nonEmpty(&o.grammar.text, "want a grammar"),
			usage: "generate only texts of a grammar, whose first rule is called root"},
		{names: "--grammar-file", arg: "FILE", group: groupGeneration, value: fileValue(&o.grammar.file),
			usage: "the same with the grammar from a file"},
		{names: "-j, --json-schema", arg: "SCHEMA", group: groupGeneration, value: nonEmpty(&o.grammar.schema, "want a JSON schema, such as {} for any JSON"),
			usage: "generate only JSON that is valid against a schema, such as {} for any"},
		{names: "-jf, --json-schema-file", arg: "FILE", group: groupGeneration, value: fileValue(&o.grammar.schemaFile),
			usage: "the same with the schema from a file"},
		{names: "--keep", arg: "N", group: groupGeneration, value: intValue(&o.keep, -1, anyInt, "-1 (all) or more"),
			usage: "tokens at the start of the prompt that a context shift keeps, besides the model's own first one; -1 = all"},
		{names: "--context-shift", off: "--no-context-shift", env: "LLAMA_ARG_CONTEXT_SHIFT", group: groupGeneration, value: switchValue(&o.contextShift, true),
			usage: "when the context is full, forget half of what is behind --keep, and go on"},
		{names: "--exact", group: groupGeneration, value: switchValue(&o.session.Exact, true),
			usage: "text that does not depend on how it is batched, bit for bit; refused where this machine cannot"},
		{names: "--prompt-cache", arg: "FILE", group: groupGeneration, value: fileValue(&o.cacheFile),
			usage: "keep the evaluated prompt in a file and start from it next time"},
		{names: "--prompt-cache-all", group: groupGeneration, value: switchValue(&o.cacheAll, true),
			usage: "keep the generated text in it too"},
		{names: "--prompt-cache-ro", group: groupGeneration, value: switchValue(&o.cacheRead, true),
			usage: "use the file and leave it as it is"},
	}, o.samplingSettings(), o.speculationSettings(), o.contrastSettings(), []*setting{
		// Output.
		{names: "-sp, --special", group: groupOutput, value: switchValue(&o.special, true),
			usage: "write control tokens too"},
		{names: "--display-prompt", off: "--no-display-prompt", group: groupOutput, value: switchValue(&o.displayPrompt, true),
			usage: "write the prompt before the text"},
		{names: "--verbose-prompt", group: groupOutput, value: switchValue(&o.verbosePrompt, true),
			usage: "list the tokens of the prompt on standard error"},
		{names: "-co, --color", arg: "on|off|auto", group: groupOutput, value: onOffAuto(&o.color, colorOn, colorOff, colorAuto),
			usage: "colour the prompt that --display-prompt writes, and what --show shows; auto = on a terminal"},
		{names: "--show", group: groupOutput, value: switchValue(&o.show, true),
			usage: "colour the text by how it came: drafted tokens that stood are green, what stands in place of one that fell is red"},
		{names: "--json", group: groupOutput, value: switchValue(&o.json, true),
			usage: "a JSON object for each token, and a last one with statistics"},
		{names: "--logprobs", arg: "N", group: groupOutput, value: intValue(&o.logProbs, 0, anyInt, "0 (off) or more"),
			usage: "with --json: log-probabilities of each token and of the N most likely ones, by the model and behind the filters; 0 = off"},
		{names: "--trace", arg: "FILE", group: groupOutput, value: fileValue(&o.traceFile),
			usage: "write a JSON object for each token to a file: what every filter left, and what was drawn"},
		{names: "--explain", group: groupOutput, value: switchValue(&o.explain, true),
			usage: "list every setting and where it comes from, and the filters as they will run, on standard error"},
		{names: "--perf", off: "--no-perf", env: "LLAMA_ARG_PERF", group: groupOutput, value: switchValue(&o.perf, true),
			usage: "write a line of statistics to standard error at the end"},
		{names: "-v, --verbose, --log-verbose", group: groupOutput, value: verboseValue(&o.verbosity),
			usage: "write everything that llama.cpp and gen log"},
		{names: "-lv, --verbosity, --log-verbosity", arg: "N", env: "LLAMA_ARG_LOG_VERBOSITY", group: groupOutput,
			value: intValue(&o.verbosity, 0, math.MaxInt, "0 or more"),
			usage: "how much of that: 0 nothing, 1 errors, 2 warnings, 3 information, 5 all"},
		{names: "--log-file", arg: "FILE", env: "LLAMA_ARG_LOG_FILE", group: groupOutput, value: fileValue(&o.logFile),
			usage: "write the log to a file too"},
		{names: "--log-disable", group: groupOutput, value: switchValue(&o.logDisable, true),
			usage: "write no log"},
		{names: "-h, --help", group: groupOutput, value: switchValue(&o.help, true), usage: "show this text and end"},
		{names: "--version", group: groupOutput, value: switchValue(&o.version, true), usage: "the same as gen version"},

		// Spellings of older releases, and what gen does anyway.
		{names: "--mmap", of: loadMode, convert: always("mmap"), notice: true},
		{names: "--no-mmap", of: loadMode, convert: always("none"), notice: true},
		{names: "--mlock", of: loadMode, convert: always("mlock"), notice: true},
		{names: "-dio, --direct-io", of: loadMode, convert: always("dio"), notice: true},
		{names: "--no-warmup", value: ignored()},
		{names: "-no-cnv, --no-conversation", value: ignored()},
		{names: "--simple-io", value: ignored()},
	})
}

func always(text string) func(string) (string, error) {
	return func(string) (string, error) { return text, nil }
}

// ignored is the value of a switch that asks for what gen does in any case.
func ignored() value { return switchValue(new(bool), true) }

func threadsValue(p *int) value {
	v := intValue(p, -1, 512, "")
	set := v.set
	v.set = func(text string) error {
		if text == "0" || set(text) != nil {
			return errors.New("want 1 to 512, or -1 for the default")
		}
		return nil
	}
	return v
}

func gpuLayersValue(o *llama.ModelOptions) value {
	return value{
		set: func(text string) error {
			if text == "auto" || text == "all" || text == "-1" {
				o.GPULayers, o.CPUOnly = 0, false
				return nil
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > 1<<20 {
				return errors.New("want 0 or more, auto or all")
			}
			o.GPULayers, o.CPUOnly = n, n == 0
			return nil
		},
		get: func() string {
			switch {
			case o.CPUOnly:
				return "0"
			case o.GPULayers == 0:
				return "all"
			}
			return strconv.Itoa(o.GPULayers)
		},
	}
}

func commaList(want string) func(string) ([]string, error) {
	return func(text string) ([]string, error) {
		items := splitCommas(text)
		for _, item := range items {
			if item == "" {
				return nil, errors.New(want)
			}
		}
		return items, nil
	}
}

func parseSplit(text string) ([]float32, error) {
	var parts []float32
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '/' }) {
		x, err := strconv.ParseFloat(item, 32)
		if err != nil || !(x >= 0 && x <= 1e30) {
			return nil, errors.New("want shares of 0 or more, separated by commas")
		}
		parts = append(parts, float32(x))
	}
	return parts, nil
}

// tensorTypeValue is the type of a KV cache. unset is what stands for none: f16,
// or auto, which can be given too.
func tensorTypeValue(p *llama.TensorType, unset string) value {
	allowed := "f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl"
	if unset == "auto" {
		allowed = "auto, " + allowed
	}
	return value{
		set: func(text string) error {
			t, err := llama.ParseTensorType(text)
			if err != nil || t == llama.TypeAuto && unset != "auto" {
				return errors.New("want " + allowed)
			}
			*p = t
			return nil
		},
		get: func() string {
			if *p == llama.TypeAuto {
				return unset
			}
			return p.String()
		},
	}
}

// overridesValue reads what llama.cpp's string_parse_kv_override does.
func overridesValue(p *map[string]any) value {
	var given []string
	return value{
		set: func(text string) error {
			for _, item := range splitCommas(text) {
				key, value, err := parseOverride(item)
				if err != nil {
					return err
				}
				if *p == nil {
					*p = map[string]any{}
				}
				(*p)[key] = value
			}
			given = append(given, text)
			return nil
		},
		get: func() string { return strings.Join(given, ",") },
	}
}

func parseOverride(item string) (string, any, error) {
	bad := errors.New("want KEY=TYPE:VALUE with int, float, bool or str as TYPE and a VALUE of it")
	key, typed, _ := strings.Cut(item, "=")
	kind, text, found := strings.Cut(typed, ":")
	if key == "" || !found {
		return "", nil, bad
	}
	var value any
	var err error
	switch kind {
	case "int":
		value, err = strconv.ParseInt(text, 10, 64)
	case "float":
		value, err = strconv.ParseFloat(text, 64)
	case "bool":
		value, err = text == "true", nil
		if text != "true" && text != "false" {
			err = bad
		}
	case "str":
		value = text
		if len(text) > 127 {
			err = bad
		}
	default:
		err = bad
	}
	if err != nil {
		return "", nil, bad
	}
	return key, value, nil
}

func (l lora) String() string {
	if l.scale == 1 {
		return l.file
	}
	return fmt.Sprintf("%s:%v", l.file, l.scale)
}

func parseLoras(text string) ([]lora, error) {
	var all []lora
	for _, file := range splitCommas(text) {
		if file == "" {
			return nil, errors.New("want the names of files")
		}
		all = append(all, lora{file, 1})
	}
	return all, nil
}

func parseScaledLoras(text string) ([]lora, error) {
	var all []lora
	for _, item := range splitCommas(text) {
		colon := strings.LastIndexByte(item, ':')
		if colon < 1 {
			return nil, errors.New("want FILE:SCALE")
		}
		scale, err := strconv.ParseFloat(item[colon+1:], 64)
		if err != nil || !(math.Abs(scale) <= math.MaxFloat32) {
			return nil, errors.New("want FILE:SCALE with a finite number as SCALE")
		}
		all = append(all, lora{item[:colon], scale})
	}
	return all, nil
}

func reverseValue(p *[]string) value {
	return listValue(p, func(text string) ([]string, error) {
		if text == "" {
			return nil, errors.New("want a text of one byte or more")
		}
		return []string{text}, nil
	}, strconv.Quote)
}

// randomSeed is the seed that means random in llama.cpp, besides -1.
const randomSeed = math.MaxUint32

func seedValue(seed *uint64, random *bool) value {
	return value{
		set: func(text string) error {
			*random = text == "-1" || text == strconv.Itoa(randomSeed)
			if *random {
				return nil
			}
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return errors.New("want -1 (random) or a whole number from 0 to 18446744073709551615")
			}
			*seed = n
			return nil
		},
		get: func() string {
			if *random {
				return "-1"
			}
			return strconv.FormatUint(*seed, 10)
		},
	}
}

// biasValue reads ID+BIAS and ID-BIAS. Biases of one token add up.
func biasValue(p *map[int32]float64) value {
	var given []string
	return value{
		set: func(text string) error {
			bad := errors.New("want a token id, + or -, and a number, such as 15043+1")
			at := strings.IndexAny(text, "+-")
			if at < 1 {
				return bad
			}
			id, err1 := strconv.ParseInt(text[:at], 10, 32)
			bias, err2 := strconv.ParseFloat(text[at:], 64)
			if err1 != nil || err2 != nil || !(bias <= math.MaxFloat32) {
				return bad
			}
			if *p == nil {
				*p = map[int32]float64{}
			}
			(*p)[int32(id)] += bias
			given = append(given, text)
			return nil
		},
		get: func() string { return strings.Join(given, ",") },
	}
}

func verboseValue(p *int) value {
	return value{
		set: func(text string) error {
			on, err := parseSwitch(text)
			if err == nil && on {
				*p = math.MaxInt
			}
			return err
		},
		get: func() string {
			if *p == math.MaxInt {
				return "on"
			}
			return "off"
		},
	}
}
