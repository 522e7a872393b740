package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/llama"
)

// versionCommand makes gen version.
func (a *app) versionCommand() *cli.Command {
	var p parser
	var asJSON bool
	p.settings = []*setting{
		{names: "--json", group: "flags", value: switchValue(&asJSON, true), usage: "one JSON object"},
	}
	return subcommand("version", "versions, CPU features, backends and devices", "", &p, a, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("version: takes no arguments, got %q", c.Args().First())
		}
		return a.version(asJSON)
	})
}

// facts are what gen version tells.
type facts struct {
	Gen      string         `json:"gen"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Llama    llama.Version  `json:"llama"`
	Missing  []string       `json:"missing_cpu_features,omitempty"`
	Backends []string       `json:"backends"`
	Devices  []llama.Device `json:"devices"`
}

func newFacts() facts {
	f := facts{Gen: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Llama: llama.Versions()}
	if info, ok := debug.ReadBuildInfo(); ok {
		f.Gen = info.Main.Version
	}
	f.Missing = missingFeatures(f.Llama)
	if len(f.Missing) == 0 { // else a call could be the end of the process
		f.Backends, f.Devices = llama.Backends(), llama.Devices()
	}
	return f
}

// missingFeatures lists what llama.cpp was compiled for and this CPU lacks.
func missingFeatures(v llama.Version) []string {
	var missing []string
	for _, name := range v.Compiled {
		if !slices.Contains(v.Present, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// checkCPU comes before the first native call that computes.
func checkCPU(v llama.Version) error {
	if missing := missingFeatures(v); len(missing) > 0 {
		return fmt.Errorf("llama.cpp was compiled for %s, which this CPU does not have: run ./build.sh here and build again", strings.Join(missing, ", "))
	}
	return nil
}

func (a *app) version(asJSON bool) error {
	f := newFacts()
	var out bytes.Buffer
	if asJSON {
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(f); err != nil {
			return err
		}
		return a.write(out.Bytes())
	}
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-14s%s\n", name, fmt.Sprintf(format, args...))
	}
	row("gen", "%s, %s, %s", f.Gen, f.Go, f.Platform)
	row("llama.cpp", "%s, ggml %s (%s)", f.Llama.LlamaCPP, f.Llama.GGML, f.Llama.Commit)
	row("built from", "%s by %s", orElse(f.Llama.Pin, "an installed llama.cpp"), orElse(f.Llama.Compiler, "an unknown compiler"))
	row("compiled for", "%s", strings.Join(f.Llama.Compiled, " "))
	row("this CPU has", "%s", strings.Join(f.Llama.Present, " "))
	if len(f.Missing) > 0 {
		row("missing", "%s: run ./build.sh on this machine and build again", strings.Join(f.Missing, " "))
	}
	row("backends", "%s", strings.Join(f.Backends, ", "))
	for _, d := range f.Devices {
		row("device", "%s", deviceLine(d))
	}
	return a.write(out.Bytes())
}

func (a *app) listDevices() error {
	var out bytes.Buffer
	for _, d := range llama.Devices() {
		fmt.Fprintln(&out, deviceLine(d))
	}
	return a.write(out.Bytes())
}

func deviceLine(d llama.Device) string {
	line := fmt.Sprintf("%s: %s (%s", d.Name, d.Description, d.Type)
	if d.Total > 0 {
		const mib = 1 << 20
		line += fmt.Sprintf(", %d MiB, %d MiB free", d.Total/mib, d.Free/mib)
	}
	return line + ")"
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// write writes the output of a command that is no text.
func (a *app) write(b []byte) error {
	if _, err := a.stdout.Write(b); err != nil {
		return outputError{err}
	}
	return nil
}
