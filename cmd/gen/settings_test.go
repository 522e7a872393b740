package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/llama"
)

// parse returns the settings of a command line.
func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := newOptions()
	root := new(app).command(o, func(*options) error { return nil })
	require.NoError(t, root.Run(append([]string{"gen", "-m", "x"}, args...)))
	return o
}

// refusal runs a command line that is bad usage and returns what it says.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	r := runHere(t, "", args...)
	assert.Equal(t, exitUsage, r.status, "gen %q", args)
	assert.Empty(t, r.stdout, "gen %q", args)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %s", r.stderr)
	return strings.TrimSuffix(r.stderr, "\n")
}

func TestBadValues(t *testing.T) {
	for _, c := range []struct{ flag, value, message string }{
		{"--temp", "nan", "gen: --temp nan: want 0 (greedy) or a positive number"},
		{"--temp", "inf", "gen: --temp inf: want 0 (greedy) or a positive number"},
		{"--temp", "-0.1", "gen: --temp -0.1: want 0 (greedy) or a positive number"},
		{"--temperature", "hot", "gen: --temperature hot: want 0 (greedy) or a positive number"},
		{"--top-p", "2", "gen: --top-p 2: want 0 to 1; 1 = off"},
		{"--top-p", "-0.1", "gen: --top-p -0.1: want 0 to 1; 1 = off"},
		{"--min-p", "1.5", "gen: --min-p 1.5: want 0 to 1; 0 = off"},
		{"--top-k", "2.5", "gen: --top-k 2.5: want a whole number; 0 = off"},
		{"-n", "-5", "gen: -n -5: want -1 (no limit), -2 (until the context is full), or 0 and more"},
		{"--predict", "x", "gen: --predict x: want -1 (no limit), -2 (until the context is full), or 0 and more"},
		{"-c", "-1", "gen: -c -1: want 0 (from the model) to 2147483647 tokens"},
		{"-c", "2147483648", "gen: -c 2147483648: want 0 (from the model) to 2147483647 tokens"},
		{"-b", "0", "gen: -b 0: want 1 to 1048576"},
		{"-ub", "0", "gen: -ub 0: want 1 to 1048576"},
		{"-t", "0", "gen: -t 0: want 1 to 512, or -1 for the default"},
		{"-ngl", "-2", "gen: -ngl -2: want 0 or more, auto or all"},
		{"-s", "-2", "gen: -s -2: want -1 (random) or a whole number from 0 to 18446744073709551615"},
		{"--repeat-last-n", "-1", "gen: --repeat-last-n -1: want 0 (off) or more tokens"},
		{"--repeat-penalty", "0", "gen: --repeat-penalty 0: want a positive number; 1 = off"},
		{"--repeat-penalty", "inf", "gen: --repeat-penalty inf: want a positive number; 1 = off"},
		{"--presence-penalty", "nan", "gen: --presence-penalty nan: want a number; 0 = off"},
		{"--frequency-penalty", "-inf", "gen: --frequency-penalty -inf: want a number; 0 = off"},
		{"-l", "5", "gen: -l 5: want a token id, + or -, and a number, such as 15043+1"},
		{"-l", "-5+1", "gen: -l -5+1: want a token id, + or -, and a number, such as 15043+1"},
		{"-l", "5+inf", "gen: -l 5+inf: want a token id, + or -, and a number, such as 15043+1"},
		{"-l", "5+nan", "gen: -l 5+nan: want a token id, + or -, and a number, such as 15043+1"},
		{"-fa", "maybe", "gen: -fa maybe: want on, off or auto"},
		{"-lm", "fast", "gen: -lm fast: want auto, none, mmap, mlock, mmap+mlock or dio"},
		{"-sm", "half", "gen: -sm half: want none, layer, row or tensor"},
		{"-ctk", "q3_0", "gen: -ctk q3_0: want f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl"},
		{"-ts", "3,x", "gen: -ts 3,x: want shares of 0 or more, separated by commas"},
		{"-r", "", `gen: -r "": want a text of one byte or more`},
		{"--samplers", "top_k;top_q", "gen: --samplers top_k;top_q: want each at most once of logit_bias, min_length, no_repeat_ngram, penalties, dry, top_n_sigma, top_k, typ_p, epsilon, eta, tfs, top_a, top_p, min_p, xtc, temperature, adaptive_p, separated by semicolons"},
		{"--samplers", "top_k;top-k", "gen: --samplers top_k;top-k: want each at most once of logit_bias, min_length, no_repeat_ngram, penalties, dry, top_n_sigma, top_k, typ_p, epsilon, eta, tfs, top_a, top_p, min_p, xtc, temperature, adaptive_p, separated by semicolons"},
		{"--samplers", "top_k;infill", "gen: --samplers top_k;infill: gen has no infill filter: leave it out"},
		{"--sampler-seq", "kz", "gen: --sampler-seq kz: want letters of b logit_bias, l min_length, n no_repeat_ngram, e penalties, d dry, s top_n_sigma, k top_k, y typ_p, c epsilon, h eta, f tfs, o top_a, p top_p, m min_p, x xtc, t temperature, a adaptive_p"},
		{"--sampler-seq", "ki", "gen: --sampler-seq ki: gen has no infill filter: leave it out"},
		{"--sampler-seq", "kk", "gen: --sampler-seq kk: want each at most once of logit_bias, min_length, no_repeat_ngram, penalties, dry, top_n_sigma, top_k, typ_p, epsilon, eta, tfs, top_a, top_p, min_p, xtc, temperature, adaptive_p, separated by semicolons"},
		{"--draw", "dice", "gen: --draw dice: want gumbel, inverse or mt19937"},
		{"--dynatemp-range", "-1", "gen: --dynatemp-range -1: want 0 (off) or a positive number"},
		{"--dynatemp-exp", "0", "gen: --dynatemp-exp 0: want a positive number"},
		{"--top-k-frac", "1.1", "gen: --top-k-frac 1.1: want 0 (off) to 1"},
		{"--top-nsigma", "nan", "gen: --top-nsigma nan: want a number; 0 and below = off"},
		{"--top-n-sigma", "inf", "gen: --top-n-sigma inf: want a number; 0 and below = off"},
		{"--typical", "-0.1", "gen: --typical -0.1: want 0 to 1; 1 = off"},
		{"--typical-p", "1.1", "gen: --typical-p 1.1: want 0 to 1; 1 = off"},
		{"--top-a", "-1", "gen: --top-a -1: want 0 (off) or a positive number"},
		{"--top-a-power", "0", "gen: --top-a-power 0: want a positive number"},
		{"--epsilon-cutoff", "1", "gen: --epsilon-cutoff 1: want 0 (off) to below 1"},
		{"--eta-cutoff", "-0.1", "gen: --eta-cutoff -0.1: want 0 (off) to below 1"},
		{"--tfs", "2", "gen: --tfs 2: want 0 to 1; 1 = off"},
		{"--xtc-probability", "-0.5", "gen: --xtc-probability -0.5: want 0 to 1; 0 = off"},
		{"--xtc-threshold", "1.5", "gen: --xtc-threshold 1.5: want 0 to 1; above 0.5 = off"},
		{"--xtc-exempt", "x", "gen: --xtc-exempt x: want token ids of 0 or more, separated by commas"},
		{"--adaptive-target", "1.5", "gen: --adaptive-target 1.5: want at most 1; below 0 = off"},
		{"--adaptive-target", "-inf", "gen: --adaptive-target -inf: want at most 1; below 0 = off"},
		{"--adaptive-decay", "1", "gen: --adaptive-decay 1: want 0 to 0.99"},
		{"--mirostat", "3", "gen: --mirostat 3: want 0 (off), 1 or 2"},
		{"--mirostat-lr", "0", "gen: --mirostat-lr 0: want a positive number"},
		{"--mirostat-ent", "-5", "gen: --mirostat-ent -5: want a positive number"},
		{"--penalty-prompt", "maybe", "gen: --penalty-prompt maybe: want on or off"},
		{"--penalty-exempt", "-3", "gen: --penalty-exempt -3: want token ids of 0 or more, separated by commas"},
		{"--dry-multiplier", "-1", "gen: --dry-multiplier -1: want 0 (off) or a positive number"},
		{"--dry-base", "0.5", "gen: --dry-base 0.5: want a number of 1 or more"},
		{"--dry-allowed-length", "-1", "gen: --dry-allowed-length -1: want 0 or more tokens"},
		{"--dry-penalty-last-n", "-1", "gen: --dry-penalty-last-n -1: want 0 (off) or more tokens"},
		{"--dry-sequence-breaker", "", `gen: --dry-sequence-breaker "": want a text of 1 to 40 bytes, or none`},
		{"--no-repeat-ngram", "-1", "gen: --no-repeat-ngram -1: want 0 (off) or more tokens"},
		{"--min-tokens", "1.5", "gen: --min-tokens 1.5: want 0 (off) or more tokens"},
		{"--suppress", "5,", "gen: --suppress 5,: want token ids of 0 or more, separated by commas"},
		{"-md", "", `gen: -md "": want the name of a file`},
		{"--spec-type", "medusa", "gen: --spec-type medusa: want none, or of ngram, draft, lookahead, separated by commas"},
		{"--spec-type", "draft-eagle3", "gen: --spec-type draft-eagle3: want none, or of ngram, draft, lookahead, separated by commas"},
		{"--spec-type", "none,ngram", "gen: --spec-type none,ngram: want none, or of ngram, draft, lookahead, separated by commas"},
		{"--spec-type", "draft", "gen: --spec-type draft: it needs a draft model, with -md FILE"},
		{"--spec-rule", "typical", "gen: --spec-rule typical: want coupled, block or token"},
		{"--spec-adaptive", "maybe", "gen: --spec-adaptive maybe: want on or off"},
		{"--spec-draft-n-max", "0", "gen: --spec-draft-n-max 0: want 1 to 64 tokens"},
		{"--spec-draft-n-max", "65", "gen: --spec-draft-n-max 65: want 1 to 64 tokens"},
		{"--draft-max", "65", "gen: --draft-max 65: want 1 to 64 tokens"},
		{"--spec-draft-n-min", "17", "gen: --spec-draft-n-min 17: want at most --spec-draft-n-max, which is 16"},
		{"--spec-draft-p-min", "nan", "gen: --spec-draft-p-min nan: want 0 (off) to 1"},
		{"-ngld", "-2", "gen: -ngld -2: want 0 or more, auto or all"},
		{"-td", "0", "gen: -td 0: want 1 to 512, or -1 for the default"},
		{"-tbd", "x", "gen: -tbd x: want 1 to 512, or -1 for the default"},
		{"-ctkd", "q3_0", "gen: -ctkd q3_0: want auto, f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl"},
		{"--spec-ngram-context-min", "33", "gen: --spec-ngram-context-min 33: want 1 to 32 tokens"},
		{"--spec-ngram-context-max", "0", "gen: --spec-ngram-context-max 0: want 1 to 32 tokens"},
		{"--spec-ngram-filler", "9", "gen: --spec-ngram-filler 9: want 0 (off) to 8 tokens"},
		{"--spec-ngram-min-hits", "2", "gen: --spec-ngram-min-hits 2: not here: an n-gram counts by how often its like came true; leave it out"},
		{"--draft-p-split", "0.1", "gen: --draft-p-split 0.1: not here: --spec-draft-widths says where drafts branch; leave it out"},
		{"--spec-draft-widths", "0", "gen: --spec-draft-widths 0: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "2,", "gen: --spec-draft-widths 2,: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "2,-1", "gen: --spec-draft-widths 2,-1: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "2.5", "gen: --spec-draft-widths 2.5: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "60,5", "gen: --spec-draft-widths 60,5: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "2,9223372036854775807", "gen: --spec-draft-widths 2,9223372036854775807: want tokens at each position, 1 or more, separated by commas, 64 together at most"},
		{"--spec-draft-widths", "9,8", "gen: --spec-draft-widths 9,8: 17 tokens together: want at most --spec-draft-n-max, which is 16"},
		{"-cd", "512", "gen: -cd 512: not here: the draft model has the context of the model; leave it out"},
		{"--cd-model", "", `gen: --cd-model "": want the name of a file`},
		{"--cd-alpha", "1.1", "gen: --cd-alpha 1.1: want 0 (keep all) to 1"},
		{"--cd-form", "ratio", "gen: --cd-form ratio: want logit or log"},
		{"--cd-beta", "-1", "gen: --cd-beta -1: want 0 (off) or a positive number"},
		{"--cd-temp", "0", "gen: --cd-temp 0: want a number of 1e-05 or more; 1 = off"},
		{"--guidance-scale", "-1", "gen: --guidance-scale -1: want 0 to 1e+06; 1 = off"},
		{"--guidance-scale", "inf", "gen: --guidance-scale inf: want 0 to 1e+06; 1 = off"},
		{"--trace", "", `gen: --trace "": want the name of a file`},
		{"--override-kv", "a=int:x", "gen: --override-kv a=int:x: want KEY=TYPE:VALUE with int, float, bool or str as TYPE and a VALUE of it"},
		{"--lora-scaled", "f", "gen: --lora-scaled f: want FILE:SCALE"},
		{"--lora-scaled", "f:nan", "gen: --lora-scaled f:nan: want FILE:SCALE with a finite number as SCALE"},
		{"-m", "", `gen: -m "": want the name of a file`},
		{"--logprobs", "-1", "gen: --logprobs -1: want 0 (off) or more"},
		{"--color", "red", "gen: --color red: want on, off or auto"},
	} {
		assert.Equal(t, c.message, refusal(t, "-m", "x.gguf", "-p", "x", c.flag, c.value))
	}
	assert.Contains(t, refusal(t, "-m", "x.gguf", "-p", "x", "-dev", "GPU99"), "gen: --device GPU99: want none, or devices of ")
}

func TestBadCommandLines(t *testing.T) {
	for _, c := range []struct {
		args    string
		message string
	}{
		{"-m x --tmep 1", "gen: --tmep: unknown flag; did you mean --temp? gen -h lists all flags"},
		{"-m x --top_k 1", "gen: --top_k: unknown flag; did you mean --top-k? gen -h lists all flags"},
		{"-m x --backward 2", "gen: --backward: unknown flag; gen -h lists all flags"},
		{"-m x -x", "gen: -x: unknown flag; gen -h lists all flags"},
		{"-m x -n", "gen: -n: its value is missing"},
		{"-p x", "gen: no model: give a GGUF file with -m FILE"},
		{"-m x hello", `gen: "hello": unknown command; the prompt follows -p`},
		{"-m x tokenize -p y", "gen: -m stands before tokenize: flags follow the command, as in gen tokenize -m"},
		{"-m x -p y -f z", "gen: more than one prompt: give one of -p, -f and -bf"},
		{"-m x -b 64 -ub 65", "gen: --ubatch-size 65: want at most the batch size, 64"},
		{"-m x --context-shift --prompt-cache y", "gen: --prompt-cache holds a text from its beginning, of which --context-shift forgets a part: give one of them"},
		{"-m x --prompt-cache-all", "gen: --prompt-cache-all and --prompt-cache-ro need --prompt-cache FILE"},
		{"-m x --prompt-cache f --prompt-cache-all --prompt-cache-ro", "gen: --prompt-cache-all writes the file and --prompt-cache-ro does not: give one of them"},
		{"-m x -p y -lcs f -lcd g", "gen: -lcs and -lcd: give one of them"},
		{"-m x -p y -md d -b 4 -ub 4 --spec-draft-n-min 4", "gen: --batch-size 4: it has room for drafts of 3 tokens"},
		{"-m x -p y -md d --spec-draft-n-max 4 --spec-draft-widths 3,2", "gen: --spec-draft-widths 3,2: 5 tokens together: want at most --spec-draft-n-max, which is 4"},
		{"-m x -p y -md d -b 4 -ub 4 --spec-draft-widths 2,2", "gen: --spec-draft-widths 2,2: 4 tokens together: want at most --spec-draft-n-max, which is 3"},
		{"-m x -p y -md d --spec-draft-widths 2 --exact", "gen: --spec-draft-widths and --exact: a tree leaves the cache in an order of its own, in which sums are rounded otherwise: give one of them"},
		{"-m x -p y -b 1 -ub 1 --guidance-scale 2", "gen: --batch-size 1: guidance needs 2"},
		{"-m x -p y --spec-ngram-context-min 5 --spec-ngram-context-max 4", "gen: --spec-ngram-context-min 5: want at most --spec-ngram-context-max, which is 4"},
		{"-m x --perf=maybe", "gen: --perf maybe: want on or off"},
		{"tokenize -p x", "gen: no model: give a GGUF file with -m FILE"},
		{"tokenize -m x -p y z", `gen: "z": the text follows -p`},
		{"tokenize -m x --ids --josn", "gen: --josn: unknown flag; did you mean --json? gen tokenize -h lists all flags"},
		{"tokenize -m x --decode 1,y", "gen: --decode 1,y: want token ids of 0 or more, separated by commas"},
		{"tokenize -m x --decode 1,-2", "gen: --decode 1,-2: want token ids of 0 or more, separated by commas"},
		{"inspect", "gen: inspect: want one file, got 0"},
		{"inspect a --json", "gen: --json: flags come before other arguments"},
		{"quantize a b", "gen: quantize: want IN OUT TYPE, got 2 arguments"},
		{"quantize --prune-layers x a b Q4_0", "gen: --prune-layers x: want numbers of layers, from 0, separated by commas"},
		{"version please", `gen: version: takes no arguments, got "please"`},
	} {
		assert.Equal(t, c.message, refusal(t, strings.Fields(c.args)...), c.args)
	}
	assert.Contains(t, refusal(t, "quantize", "a", "b", "Q9"), "gen: quantize to Q9: want one of BF16, F16, F32,")
}

func TestNoFlagsAtAll(t *testing.T) {
	r := runHere(t, "")
	assert.Equal(t, exitUsage, r.status)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, example)
	assert.Less(t, strings.Count(r.stderr, "\n"), 8, "it is short")

	t.Setenv("LLAMA_ARG_MODEL", "nowhere.gguf")
	r = runHere(t, "hello")
	assert.Equal(t, exitFailure, r.status, "the environment names a model")
	assert.Contains(t, r.stderr, "nowhere.gguf")
}

func TestDefaultsAreThoseOfLlamaCpp(t *testing.T) {
	o := newOptions()
	for name, want := range map[string]string{
		"--ctx-size": "0", "--batch-size": "2048", "--ubatch-size": "512", "--threads": "-1", "--gpu-layers": "all",
		"--split-mode": "layer", "--main-gpu": "0", "--load-mode": "auto", "--flash-attn": "auto", "--cache-type-k": "f16",
		"--cache-type-v": "f16", "--predict": "-1", "--keep": "0", "--context-shift": "off", "--escape": "on", "--color": "auto",
		"--seed": "-1", "--temp": "0.8", "--top-k": "40", "--top-p": "0.95", "--min-p": "0.05", "--repeat-last-n": "64",
		"--repeat-penalty": "1", "--presence-penalty": "0", "--frequency-penalty": "0",
		"--dynatemp-range": "0", "--dynatemp-exp": "1", "--top-nsigma": "-1", "--typical": "1", "--xtc-probability": "0", "--xtc-threshold": "0.1",
		"--adaptive-target": "-1", "--adaptive-decay": "0.9", "--mirostat": "0", "--mirostat-lr": "0.1", "--mirostat-ent": "5",
		"--dry-multiplier": "0", "--dry-base": "1.75", "--dry-allowed-length": "2", "--dry-penalty-last-n": "64", "--dry-sequence-breaker": `"\n",":","\"","*"`,
		// What llama.cpp does not have is off.
		"--top-k-frac": "0", "--top-a": "0", "--top-a-power": "2", "--epsilon-cutoff": "0", "--eta-cutoff": "0", "--tfs": "1",
		"--no-repeat-ngram": "0", "--min-tokens": "0", "--suppress": "", "--penalty-exempt": "", "--xtc-exempt": "", "--penalty-prompt": "on", "--draw": "gumbel",
		"--spec-type": "none", "--spec-rule": "coupled", "--spec-adaptive": "on", "--spec-draft-n-max": "16", "--spec-draft-n-min": "0", "--spec-draft-p-min": "0", "--spec-draft-widths": "",
		"--spec-draft-ngl": "all", "--spec-draft-threads": "-1", "--spec-draft-threads-batch": "-1", "--spec-draft-type-k": "auto", "--spec-draft-type-v": "f16",
		"--spec-ngram-context-min": "1", "--spec-ngram-context-max": "8", "--spec-ngram-filler": "0",
		"--cd-model": "", "--cd-alpha": "0.1", "--cd-beta": "0.5", "--cd-form": "logit", "--cd-temp": "1", "--guidance-scale": "1", "--negative-prompt": "",
		"--samplers": "penalties;dry;top_n_sigma;top_k;typ_p;epsilon;eta;tfs;top_a;top_p;min_p;xtc;temperature;adaptive_p",
	} {
		assert.Equal(t, want, o.find(name).get(), name)
	}
}

func TestSpellings(t *testing.T) {
	o := parse(t, "-m", "x", "-ngl", "7", "--n-predict", "3", "--no-escape", "--display-prompt", "--display-prompt=off",
		"-fa", "1", "--sampler-seq", "tk", "-s", "4294967295", "-r", "a", "-r", "b,c", "-l", "5+1.5", "-l", "5+1", "-l", "7-inf",
		"--override-kv", `a.b=int:-3,c=str:"x",d=bool:true,e=float:1e3`, "--lora", "a,b", "--lora-scaled", "c:d:0.5", "-ts", "3/1", "-dev", "none")
	assert.Equal(t, 7, o.load.GPULayers)
	assert.Equal(t, 3, o.predict)
	assert.False(t, o.escapes)
	assert.False(t, o.displayPrompt)
	assert.Equal(t, llama.FlashOn, o.session.FlashAttention)
	assert.Equal(t, []string{"temperature", "top_k"}, o.samplers)
	assert.True(t, o.random)
	assert.Equal(t, []string{"a", "b,c"}, o.reverse, "commas belong to the text")
	assert.Equal(t, map[int32]float64{5: 2.5, 7: math.Inf(-1)}, o.sampling.LogitBias)
	assert.Equal(t, map[string]any{"a.b": int64(-3), "c": `"x"`, "d": true, "e": 1000.0}, o.load.Overrides)
	assert.Equal(t, []lora{{"a", 1}, {"b", 1}, {"c:d", 0.5}}, o.loras)
	assert.Equal(t, []float32{3, 1}, o.load.TensorSplit)
	assert.Equal(t, []string{"none"}, o.devices)
}

func TestOldSpellings(t *testing.T) {
	for _, c := range []struct {
		old, notice string
		mode        llama.LoadMode
	}{
		{"--mlock", "--mlock is now --load-mode mlock", llama.LoadMlock},
		{"--no-mmap", "--no-mmap is now --load-mode none", llama.LoadRead},
		{"--mmap", "--mmap is now --load-mode mmap", llama.LoadMmap},
		{"-dio", "-dio is now --load-mode dio", llama.LoadDirectIO},
	} {
		o := parse(t, c.old)
		assert.Equal(t, c.mode, o.load.LoadMode)
		assert.Equal(t, []string{c.notice}, o.notices)
	}
	assert.Empty(t, parse(t, "--no-warmup", "-no-cnv").notices, "what is asked for is what gen does")

	for _, c := range []struct{ old, name, value, notice string }{
		{"--draft 5", "--spec-draft-n-max", "5", "--draft 5 is now --spec-draft-n-max 5"},
		{"--draft-max 5", "--spec-draft-n-max", "5", "--draft-max 5 is now --spec-draft-n-max 5"},
		{"--draft-min 2", "--spec-draft-n-min", "2", "--draft-min 2 is now --spec-draft-n-min 2"},
		{"--spec-ngram-simple-size-n 12", "--spec-ngram-context-min", "12", "--spec-ngram-simple-size-n 12 is now --spec-ngram-context-min 12"},
		{"--spec-ngram-simple-size-m 48", "--spec-draft-n-max", "48", "--spec-ngram-simple-size-m 48 is now --spec-draft-n-max 48"},
		{"--spec-ngram-mod-n-min 3", "--spec-draft-n-min", "3", "--spec-ngram-mod-n-min 3 is now --spec-draft-n-min 3"},
		{"--spec-default", "--spec-type", "ngram", "--spec-default is now --spec-type ngram"},
		{"--spec-type draft-simple", "--spec-type", "draft", "--spec-type draft-simple: gen calls it draft"},
		{"--spec-type ngram-mod", "--spec-type", "ngram", "--spec-type ngram-mod: gen calls it ngram"},
		{"--cfg-scale 1.5", "--guidance-scale", "1.5", "--cfg-scale 1.5 is now --guidance-scale 1.5"},
		{"--cfg-negative-prompt x", "--negative-prompt", "x", "--cfg-negative-prompt x is now --negative-prompt x"},
	} {
		o := parse(t, strings.Fields(c.old)...)
		assert.Equal(t, c.value, o.find(c.name).get(), c.old)
		assert.Equal(t, []string{c.notice}, o.notices)
	}
	assert.Equal(t, "ngram,draft", parse(t, "--spec-type", "draft,ngram").find("--spec-type").get(), "the order of the cascade")
}

func TestDraftModelTurnsDraftingOn(t *testing.T) {
	resolved := func(args ...string) *options {
		o := parse(t, args...)
		require.NoError(t, o.resolve())
		return o
	}
	assert.Equal(t, []string{"draft"}, resolved("-md", "f").speculation.types)
	assert.Empty(t, resolved("-md", "f", "--spec-type", "none").speculation.types)
	assert.Equal(t, []string{"ngram"}, resolved("-md", "f", "--spec-type", "ngram").speculation.types)
	t.Setenv("LLAMA_ARG_SPEC_DRAFT_MODEL", "f")
	assert.Equal(t, []string{"draft"}, resolved().speculation.types)

	o := resolved("-t", "3", "-tb", "5")
	assert.Equal(t, []int{3, 5}, []int{o.speculation.threads, o.speculation.batchThreads})
	o = resolved("-t", "3", "-tb", "5", "-td", "2")
	assert.Equal(t, []int{2, 2}, []int{o.speculation.threads, o.speculation.batchThreads})

	for _, c := range []struct {
		args      string
		sequences int
		outputs   int
	}{
		{"", 1, 33}, {"--spec-draft-n-max 64", 1, 65}, {"--spec-draft-n-max 64 --guidance-scale 2", 2, 130},
		{"--spec-draft-n-max 64 -b 20 -ub 20", 1, 20}, {"--spec-type none --guidance-scale 2", 2, 0},
	} {
		o := resolved(strings.Fields(c.args)...)
		assert.Equal(t, []int{c.sequences, c.outputs}, []int{o.session.Sequences, o.session.Outputs}, c.args)
	}
}

func TestFlagBeatsEnvironment(t *testing.T) {
	t.Setenv("LLAMA_ARG_TOP_K", "7")
	t.Setenv("LLAMA_ARG_TOP_P", "0.5")
	t.Setenv("LLAMA_ARG_PERF", "disabled")
	t.Setenv("LLAMA_ARG_MIN_P", "")
	o := parse(t, "--top-k", "9")
	assert.Equal(t, 9, o.sampling.TopK)
	assert.Equal(t, "flag", o.find("--top-k").from())
	assert.Equal(t, 0.5, o.sampling.TopP)
	assert.Equal(t, "environment, LLAMA_ARG_TOP_P", o.find("--top-p").from())
	assert.False(t, o.perf)
	assert.Equal(t, "default", o.find("--min-p").from(), "an empty variable is none")

	t.Setenv("LLAMA_ARG_TOP_K", "many")
	assert.Equal(t, "gen: LLAMA_ARG_TOP_K=many: want a whole number; 0 = off", refusal(t, "-m", "x", "-p", "y"))
}

// TestEnvironmentNames holds the table against a list of its own.
func TestEnvironmentNames(t *testing.T) {
	var got []string
	for _, s := range newOptions().settings {
		if s.env != "" {
			got = append(got, s.env)
		}
	}
	var want []string
	for name := range strings.FieldsSeq(`MODEL CTX_SIZE BATCH UBATCH THREADS N_GPU_LAYERS DEVICE SPLIT_MODE TENSOR_SPLIT MAIN_GPU RPC LOAD_MODE
		FLASH_ATTN CACHE_TYPE_K CACHE_TYPE_V KV_OFFLOAD SWA_FULL REPACK ROPE_FREQ_BASE ROPE_FREQ_SCALE N_PREDICT CONTEXT_SHIFT
		TEMPERATURE TOP_K TOP_P MIN_P REPEAT_PENALTY PRESENCE_PENALTY FREQUENCY_PENALTY PERF LOG_VERBOSITY LOG_FILE
		SPEC_DRAFT_MODEL SPEC_TYPE SPEC_DRAFT_N_MAX SPEC_DRAFT_N_MIN SPEC_DRAFT_P_MIN N_GPU_LAYERS_DRAFT SPEC_DRAFT_CACHE_TYPE_K SPEC_DRAFT_CACHE_TYPE_V`) {
		want = append(want, "LLAMA_ARG_"+name)
	}
	assert.ElementsMatch(t, want, got)
}

func TestSplitCommas(t *testing.T) {
	for text, want := range map[string][]string{
		"":                  {""},
		"a":                 {"a"},
		"a,b":               {"a", "b"},
		"a,,b":              {"a", "", "b"},
		"a,":                {"a", ""},
		`"a,b",c`:           {"a,b", "c"},
		`a,"b""c"`:          {"a", `b"c`},
		`a"b,c`:             {`a"b`, "c"},
		`"open`:             {"open"},
		`k=str:"x",l=int:1`: {`k=str:"x"`, "l=int:1"},
	} {
		assert.Equal(t, want, splitCommas(text), text)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "ac", 1}, {"ac", "abc", 1},
		{"ab", "ba", 1}, {"tmep", "temp", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		assert.Equal(t, c.want, editDistance(c.a, c.b), "%s %s", c.a, c.b)
	}
}

// Values as llama.cpp's string_process_escapes gives them.
func TestUnescape(t *testing.T) {
	for text, want := range map[string]string{
		``:                 "",
		`plain`:            "plain",
		`a\nb\rc\td`:       "a\nb\rc\td",
		`\'\"\\`:           `'"\`,
		`\\n`:              `\n`,
		`\x41\x7a\xC3\xa9`: "Azé",
		`\x4`:              `\x4`,
		`\xg1`:             `\xg1`,
		`\q\`:              `\q\`,
		`\\\n`:             "\\\n",
	} {
		assert.Equal(t, want, unescape(text), text)
	}
}

func TestUTF8Offset(t *testing.T) {
	for text, message := range map[string]string{
		"":             "",
		"日本 �":         "", // U+FFFD itself is valid
		"a\xffb":       "it is not UTF-8: byte 1 is 0xff; --binary-file takes any bytes",
		"日\xe6\x97":    "it is not UTF-8: byte 3 is 0xe6; --binary-file takes any bytes",
		"\xed\xa0\x80": "it is not UTF-8: byte 0 is 0xed; --binary-file takes any bytes",
	} {
		err := checkUTF8("it", text)
		if message == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, message)
		}
	}
}

func TestIdleFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--temp 0 --top-k 5 --top-p 1 --min-p 0.1 -s 3", []string{
			"--top-k 5 has no effect at temperature 0, which takes the most likely token",
			"--min-p 0.1 has no effect at temperature 0, which takes the most likely token",
			"-s 3 has no effect at temperature 0, which draws nothing",
		}},
		{"--samplers top_k --temp 0.5 --top-p 0.3 --repeat-penalty 1.1", []string{
			"--repeat-penalty 1.1 has no effect without penalties among the samplers",
			"--top-p 0.3 has no effect without top_p among the samplers",
			"--temp 0.5 has no effect without temperature among the samplers",
		}},
		{"--samplers top_k;temp --top-a 0.1 --top-a-power 1 --dry-multiplier 1 --dry-base 2 --xtc-threshold 0.2 --min-tokens 3 --no-repeat-ngram 2", []string{
			"--dry-multiplier 1 has no effect without dry among the samplers",
			"--dry-base 2 has no effect without dry among the samplers",
			"--top-a 0.1 has no effect without top_a among the samplers",
			"--top-a-power 1 has no effect without top_a among the samplers",
			"--xtc-threshold 0.2 has no effect without xtc among the samplers",
		}},
		{"--dry-base 2 --dry-sequence-breaker x --top-a-power 3 --xtc-exempt 5 --adaptive-decay 0.5 --dynatemp-exp 2 --mirostat-lr 0.2 --mirostat-ent 4 --penalty-exempt 3 --penalty-prompt off", []string{
			"--penalty-exempt 3 has no effect while all penalties are off",
			"--penalty-prompt off has no effect while all penalties are off",
			"--dry-base 2 has no effect without --dry-multiplier",
			"--dry-sequence-breaker \"x\" has no effect without --dry-multiplier",
			"--top-a-power 3 has no effect without --top-a",
			"--xtc-exempt 5 has no effect without --xtc-probability",
			"--adaptive-decay 0.5 has no effect without --adaptive-target",
			"--dynatemp-exp 2 has no effect without --dynatemp-range",
			"--mirostat-lr 0.2 has no effect without --mirostat",
			"--mirostat-ent 4 has no effect without --mirostat",
		}},
		{"--mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4 --temp 0.9 --min-tokens 2 -l 5+1 --suppress 4 -s 3 --draw inverse", nil},
		{"--mirostat 1 --top-k 5 --top-p 1 --dry-multiplier 1 --dry-base 2 --repeat-penalty 1.1 --repeat-last-n 5 --adaptive-target 0.3 --dynatemp-range 0.5 --dynatemp-exp 2 --sampler-seq kt", []string{
			"--repeat-penalty 1.1 has no effect with --mirostat 1",
			"--repeat-last-n 5 has no effect with --mirostat 1",
			"--dry-multiplier 1 has no effect with --mirostat 1",
			"--dry-base 2 has no effect with --mirostat 1",
			"--top-k 5 has no effect with --mirostat 1",
			"--adaptive-target 0.3 has no effect with --mirostat 1",
			"--samplers top_k;temperature has no effect with --mirostat 1",
			"--dynatemp-exp 2 has no effect with --mirostat 1",
			"--dynatemp-range 0.5 has no effect with --mirostat 1",
		}},
		{"--temp 0 --mirostat 2 --mirostat-lr 0.2", []string{
			"--mirostat 2 has no effect at temperature 0, which takes the most likely token",
			"--mirostat-lr 0.2 has no effect at temperature 0, which takes the most likely token",
		}},
		{"--temp 0 --adaptive-target 0.5 --adaptive-decay 0.5 --draw inverse", []string{
			"--adaptive-target 0.5 has no effect at temperature 0, which takes the most likely token",
			"--adaptive-decay 0.5 has no effect at temperature 0, which takes the most likely token",
			"--draw inverse has no effect at temperature 0, which draws nothing",
		}},
		// XTC and typical-p may remove the most likely token, and what comes
		// before them decides which tokens these look at.
		{"--temp 0 --xtc-probability 0.5 --top-k 5 -s 3 --draw mt19937", nil},
		{"--temp 0 --typical 0.5 --top-k 5 --top-p 0.5 -s 3", []string{
			"--top-p 0.5 has no effect at temperature 0, which takes the most likely token",
			"-s 3 has no effect at temperature 0, which draws nothing",
		}},
		{"--temp 0 --xtc-probability 0.5 --samplers temperature;xtc;penalties --repeat-penalty 2", []string{
			"--repeat-penalty 2 has no effect at temperature 0, which takes the most likely token",
			"--xtc-probability 0.5 has no effect at temperature 0, which takes the most likely token",
		}},
		{"--temp 0 --samplers top_k;penalties;temperature --top-k 5 --repeat-penalty 2", nil},
		{"--temp 0 --dynatemp-range 1 --top-k 5 -s 3", nil},
		{"--xtc-probability 0.5 --xtc-threshold 0.6 --xtc-exempt 3", []string{
			"--xtc-probability 0.5 has no effect with an XTC threshold above 0.5, which no two tokens reach",
			"--xtc-exempt 3 has no effect with an XTC threshold above 0.5, which no two tokens reach",
		}},
		{"--dry-multiplier 1 --dry-penalty-last-n 0", []string{"--dry-multiplier 1 has no effect with --dry-penalty-last-n 0"}},
		{"--top-k 5 --top-k-frac 0.1", []string{"--top-k 5 has no effect with --top-k-frac"}},
		{"--top-k -1 --top-nsigma 0 --adaptive-target -3 --typical 1 --tfs 1 --temp 0", nil},
		{"--min-tokens 5 --ignore-eos", []string{"--min-tokens 5 has no effect with --ignore-eos"}},
		{"--draw mt19937 -s 4294967298", []string{"--draw mt19937 uses the low 32 bits of the seed: 2"}},
		{"--repeat-last-n 0 --repeat-penalty 1.1", []string{"--repeat-penalty 1.1 has no effect with --repeat-last-n 0"}},
		{"--repeat-last-n 32", []string{"--repeat-last-n 32 has no effect while all penalties are off"}},
		{"--repeat-last-n 32 --presence-penalty 0.5", nil},
		{"--keep 4 --logprobs 3 --color on", []string{
			"--keep 4 has no effect without --context-shift",
			"--logprobs 3 has no effect without --json",
			"--color on has no effect without --display-prompt or --show",
		}},
		{"--json --logprobs 3 --display-prompt", []string{"--display-prompt has no effect with --json"}},
		{"-n 0 --top-k 5 -s 3 --mirostat 2 --trace f --logprobs 3 --json", []string{
			"-s 3 has no effect with -n 0", "--top-k 5 has no effect with -n 0", "--mirostat 2 has no effect with -n 0",
			"--logprobs 3 has no effect with -n 0", "--trace f has no effect with -n 0",
		}},
		{"-n 0 -r x --ignore-eos", []string{"-r \"x\" has no effect with -n 0", "--ignore-eos has no effect with -n 0"}},
		{"--spec-draft-n-max 3 --spec-rule block -td 2 --spec-ngram-filler 2 -lcd f --spec-adaptive off", []string{
			"--spec-rule block has no effect without --spec-type or --spec-draft-model, which say who drafts",
			"--spec-adaptive off has no effect without --spec-type or --spec-draft-model, which say who drafts",
			"--spec-draft-n-max 3 has no effect without --spec-type or --spec-draft-model, which say who drafts",
			"-td 2 has no effect without --spec-type or --spec-draft-model, which say who drafts",
			"--spec-ngram-filler 2 has no effect without --spec-type or --spec-draft-model, which say who drafts",
			"-lcd f has no effect without --spec-type or --spec-draft-model, which say who drafts",
		}},
		{"--spec-type none -md f --spec-draft-p-min 0.3", []string{
			"-md f has no effect with --spec-type none", "--spec-draft-p-min 0.3 has no effect with --spec-type none",
		}},
		{"--spec-type ngram -md f --spec-draft-p-min 0.3 --spec-rule token --spec-ngram-context-min 2 --spec-draft-n-min 2", []string{
			"-md f has no effect without draft in --spec-type", "--spec-draft-p-min 0.3 has no effect without draft in --spec-type",
			"--spec-rule token has no effect without a draft model: all rules judge certain proposals alike",
		}},
		{"--spec-type draft -md f --spec-ngram-context-max 2 -lcs f", []string{
			"--spec-ngram-context-max 2 has no effect without ngram in --spec-type", "-lcs f has no effect without ngram in --spec-type",
		}},
		{"--spec-type draft -md f --spec-rule block --temp 0", []string{"--spec-rule block has no effect at temperature 0, where all rules are one"}},
		{"--spec-draft-widths 2", []string{"--spec-draft-widths 2 has no effect without --spec-type or --spec-draft-model, which say who drafts"}},
		{"--spec-type ngram -md f --spec-draft-widths 2,3", []string{
			"-md f has no effect without draft in --spec-type", "--spec-draft-widths 2,3 has no effect without draft in --spec-type",
		}},
		{"--spec-type draft -md f --spec-draft-widths 1,1", []string{"--spec-draft-widths 1,1 has no effect with one token at each position, which is a line"}},
		{"--spec-type draft -md f --spec-draft-widths 1,2 --cd-model g", []string{"--spec-draft-widths 1,2 has no effect with --cd-model, where drafts are lines"}},
		{"--spec-type draft -md f --spec-draft-widths 1,2 --guidance-scale 2", []string{"--spec-draft-widths 1,2 has no effect with --guidance-scale, where drafts are lines"}},
		{"--spec-type draft -md f --spec-draft-widths 2 --spec-rule token --temp 0", []string{
			"--spec-rule token has no effect at temperature 0, where all rules are one",
			"--spec-draft-widths 2 has no effect at temperature 0 with --spec-rule token, which leaves one token to draw",
		}},
		{"--spec-type draft,ngram -md f --spec-draft-widths 1,2 --temp 0", nil},
		{"--spec-type draft -md f --spec-draft-widths 2 --spec-rule token", nil},
		{"--spec-type draft,ngram -md f --spec-rule block --spec-draft-p-min 0.1 --spec-ngram-filler 3 -lcs f -td 2", nil},
		{"-n 0 --spec-type ngram --spec-draft-n-max 3 --cd-model f --guidance-scale 2", []string{
			"--spec-type ngram has no effect with -n 0", "--spec-draft-n-max 3 has no effect with -n 0",
			"--cd-model f has no effect with -n 0", "--guidance-scale 2 has no effect with -n 0",
		}},
		{"--cd-alpha 0.2 --cd-beta 1 --cd-form log --cd-temp 2 --negative-prompt x", []string{
			"--cd-alpha 0.2 has no effect without --cd-model", "--cd-form log has no effect without --cd-model",
			"--cd-beta 1 has no effect without --cd-model", "--cd-temp 2 has no effect without --cd-model",
			"--negative-prompt x has no effect without --guidance-scale",
		}},
		{"--cd-model f --cd-form log --cd-beta 1 --cd-temp 2 --guidance-scale 2 --negative-prompt x", []string{"--cd-beta 1 has no effect with --cd-form log"}},
		{"--cd-model f --cd-beta 0 --cd-temp 2", []string{
			"--cd-model f has no effect with --cd-beta 0, which leaves --cd-alpha alone", "--cd-temp 2 has no effect with --cd-beta 0",
		}},
		{"--show", []string{"--show has no effect without drafts"}},
		{"--show --spec-type ngram", []string{"--show has no effect where the text goes to no terminal: --color on colours in any case"}},
		{"--show --spec-type ngram --json", []string{"--show has no effect with --json"}},
		{"--show --spec-type ngram --color on", nil},
		{"--swa-full", []string{"--swa-full has no effect with this model, which has no sliding window"}},
		{"--log-disable -v --log-file f", []string{"-v has no effect with --log-disable", "--log-file f has no effect with --log-disable"}},
		{"--display-prompt --color on --temp 1 --top-k 0", nil},
	} {
		o := parse(t, strings.Fields(c.args)...)
		o.noteIdleSampling(2)
		o.noteIdleSpeculation("", o.noTrees())
		o.noteIdleContrast()
		o.noteIdleFlags(0)
		o.noteIdleShow(false, "")
		assert.Equal(t, c.want, o.notices, c.args)
	}

	t.Setenv("LLAMA_ARG_TOP_K", "5")
	o := parse(t, "--temp", "0")
	o.noteIdleSampling(2)
	assert.Empty(t, o.notices, "only what the command line asks for")

	o = parse(t, "--min-tokens", "5")
	o.noteIdleSampling(0)
	assert.Equal(t, []string{"--min-tokens 5 has no effect with this model, which has no end token"}, o.notices)
}

func TestHelp(t *testing.T) {
	r := runHere(t, "", "-h")
	require.Equal(t, exitDone, r.status)
	assert.Empty(t, r.stderr)
	assert.Equal(t, r, runHere(t, "", "--help"))

	last := 0
	for _, heading := range []string{"\nModel:\n", "\nGeneration:\n", "\nSampling:\n", "\nSpeculation:\n", "\nContrastive decoding and guidance:\n", "\nOutput:\n"} {
		at := strings.Index(r.stdout, heading)
		assert.Greater(t, at, last, "%q in this order", heading)
		last = at
	}
	words := strings.FieldsFunc(r.stdout, func(c rune) bool { return strings.ContainsRune(" ,\n[]", c) })
	for _, s := range newOptions().settings {
		if s.group == "" {
			continue
		}
		for _, name := range s.spellings() {
			assert.Contains(t, words, name)
		}
		if s.env != "" {
			assert.Contains(t, words, s.env)
		}
	}
	assert.Contains(t, r.stdout, "(default: 0.8)")
	for line := range strings.Lines(r.stdout) {
		assert.LessOrEqual(t, len(line), 111, line)
	}
	for _, command := range []string{"tokenize", "inspect", "quantize", "version"} {
		r := runHere(t, "", command, "-h")
		assert.Equal(t, exitDone, r.status)
		assert.Contains(t, r.stdout, "gen "+command)
		assert.NotContains(t, r.stdout, "default: on)\n  -h", "switches are shown as they are before the flags")
	}
}
