package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/llama"
)

func (o *options) addServers() error {
	for _, server := range o.rpc {
		if err := llama.AddRPCServer(server); err != nil {
			return fmt.Errorf("--rpc: %w", err)
		}
	}
	return nil
}

// resolve works out what depends on other settings or on the machine, and
// refuses what does not go together.
func (o *options) resolve() error {
	if o.model == "" {
		return badUsage("no model: give a GGUF file with -m FILE")
	}
	if o.threads < 0 {
		o.threads = llama.DefaultThreads()
		o.find("--threads").note = "-1: one a core"
	}
	if o.batchThreads < 0 {
		o.batchThreads = o.threads
		o.find("--threads-batch").note = "-1: as --threads"
	}
	o.session.Threads, o.session.BatchThreads = o.threads, o.batchThreads

	if o.session.Microbatch > o.session.Batch {
		if o.given("--ubatch-size") {
			return badUsage("--ubatch-size %d: want at most the batch size, %d", o.session.Microbatch, o.session.Batch)
		}
		o.session.Microbatch = o.session.Batch
		o.find("--ubatch-size").note = "at most the batch size"
	}
	if (o.cacheAll || o.cacheRead) && o.cacheFile == "" {
		return badUsage("--prompt-cache-all and --prompt-cache-ro need --prompt-cache FILE")
	}
	if o.cacheFile != "" && o.contextShift {
		return badUsage("--prompt-cache holds a text from its beginning, of which --context-shift forgets a part: give one of them")
	}
	if o.cacheAll && o.cacheRead {
		return badUsage("--prompt-cache-all writes the file and --prompt-cache-ro does not: give one of them")
	}
	if err := o.resolveGrammar(); err != nil {
		return err
	}
	if err := o.resolveSpeculation(); err != nil {
		return err
	}
	return o.resolveDevices()
}

// resolveDevices applies -dev and names the flags for GPUs that change nothing.
func (o *options) resolveDevices() error {
	devices := llama.Devices()
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	draft := &o.speculation
	if !o.given("--spec-draft-device") {
		draft.devices = o.devices
	}
	for _, m := range []struct {
		flag  string
		names []string
		load  *llama.ModelOptions
	}{{"--device", o.devices, &o.load}, {"--spec-draft-device", draft.devices, &draft.load}} {
		if slices.Equal(m.names, []string{"none"}) {
			m.load.CPUOnly, m.load.GPULayers = true, 0
			continue
		}
		for _, name := range m.names {
			if !slices.Contains(names, name) {
				return badUsage("%s %s: want none, or devices of %s", m.flag, name, strings.Join(names, ", "))
			}
		}
		m.load.Devices = m.names
	}

	isGPU := func(d llama.Device) bool { return d.Type == llama.DeviceGPU || d.Type == llama.DeviceIntegrated }
	if !slices.ContainsFunc(devices, isGPU) {
		if !o.load.CPUOnly {
			o.noteIdle("--gpu-layers", "without a GPU")
		}
		if len(draft.types) > 0 && !draft.load.CPUOnly {
			o.noteIdle("--spec-draft-ngl", "without a GPU")
		}
		for _, flag := range []string{"--split-mode", "--tensor-split", "--main-gpu", "--kv-offload"} {
			o.noteIdle(flag, "without a GPU")
		}
		return nil
	}
	if o.load.SplitMode != llama.SplitNone {
		o.noteIdle("--main-gpu", "without --split-mode none")
	} else {
		o.noteIdle("--tensor-split", "with --split-mode none")
	}
	return nil
}

// stops returns the reverse prompts as they are looked for.
func (o *options) stops() []string {
	var stops []string
	for _, text := range o.reverse {
		if o.escapes {
			text = unescape(text)
		}
		stops = append(stops, text)
	}
	return stops
}

// keepTokens returns how many tokens at the start of a prompt a context shift
// keeps: the model's own first token is one of them.
func (o *options) keepTokens(v *llama.Vocab, prompt []int32) int {
	if o.keep < 0 {
		return len(prompt)
	}
	if v.Special().AddBOS {
		return o.keep + 1
	}
	return o.keep
}

// noteContext says what has become of -c.
func (o *options) noteContext(limit int) {
	asked := o.session.Context
	o.session.Context = limit
	if asked == 0 {
		o.find("--ctx-size").note = "0: from the model"
		return
	}
	if asked != limit {
		o.find("--ctx-size").note = fmt.Sprintf("%d, in steps of 256", asked)
		o.notef("-c %d becomes %d: a context comes in steps of 256", asked, limit)
	}
}

// noteIdleBasics names the flags of the model and of the log that change nothing.
// The model's attention looks back window tokens, 0 for all.
func (o *options) noteIdleBasics(window int) {
	if window == 0 {
		o.noteIdle("--swa-full", "with this model, which has no sliding window")
	}
	if o.logDisable {
		for _, flag := range []string{"--verbose", "--verbosity", "--log-file"} {
			o.noteIdle(flag, "with --log-disable")
		}
	}
}

// noteIdleFlags names the flags other than those for sampling that change
// nothing.
func (o *options) noteIdleFlags(window int) {
	o.noteIdleBasics(window)
	if !o.contextShift {
		o.noteIdle("--keep", "without --context-shift")
	}
	if o.json {
		o.noteIdle("--display-prompt", "with --json")
	} else if o.predict != 0 {
		o.noteIdle("--logprobs", "without --json")
	}
	if !o.displayPrompt && !o.show {
		o.noteIdle("--color", "without --display-prompt or --show")
	}
	if o.predict == 0 {
		o.noteIdle("--reverse-prompt", "with -n 0")
		o.noteIdle("--ignore-eos", "with -n 0")
		o.noteIdle("--logprobs", "with -n 0")
		o.noteIdle("--trace", "with -n 0")
		for _, flag := range grammarFlags {
			o.noteIdle(flag, "with -n 0")
		}
	}
}
