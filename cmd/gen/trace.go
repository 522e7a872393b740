package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// traceTop is how many candidates a trace lists for every filter.
const traceTop = 5

// A traceFile writes how each token was chosen: a line with an object for
// each. Nil writes nothing.
type traceFile struct {
	file   *os.File
	buffer *bufio.Writer
	name   string
	err    error // the first
}

// A traceLine is one token: an end token has a line, too.
type traceLine struct {
	Index   int         `json:"index"` // 0 for the first token generated
	Pos     int         `json:"pos"`   // the number of tokens before it, prompt included
	ID      int32       `json:"id"`
	Text    string      `json:"text"`
	Prob    float64     `json:"prob"` // among what the last filter left
	Seed    uint64      `json:"seed"`
	Draw    string      `json:"draw"`
	Uniform float64     `json:"uniform"` // the number that decided; see sampler.Trace
	Steps   []traceStep `json:"steps"`
}

// A traceStep is what one filter left. The first, "logits", is the row as it
// came: what a filter began with is what the one before it left.
type traceStep struct {
	Name        string  `json:"name"`
	Candidates  int     `json:"candidates"`
	Row         bool    `json:"row,omitempty"` // they are still the whole row, which no filter has listed
	Temperature float64 `json:"temperature"`   // that the logits are to be divided by

	Top []traceCandidate `json:"top"`
}

type traceCandidate struct {
	ID    int32   `json:"id"`
	Text  string  `json:"text"`
	Logit float32 `json:"logit"`
	Prob  float64 `json:"prob"`
}

// openTrace makes the file of --trace, where it is asked for, and makes the
// request write to it.
func openTrace(o *options, v *llama.Vocab, r *generate.Request) (*traceFile, error) {
	if o.traceFile == "" || o.predict == 0 {
		return nil, nil
	}
	if file, ok := o.input(o.traceFile); ok {
		return nil, badUsage("--trace %s: it would overwrite %s", o.traceFile, file)
	}
	file, err := os.Create(o.traceFile)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", o.traceFile, errors.Unwrap(err))
	}
	t := &traceFile{file: file, buffer: bufio.NewWriter(file), name: o.traceFile}
	encoder := json.NewEncoder(t.buffer)
	encoder.SetEscapeHTML(false)
	draw, prompt := o.find("--draw").get(), len(r.Prompt)
	r.TraceTop = traceTop
	r.Trace = func(trace *sampler.Trace) {
		if t.err != nil {
			return
		}
		line := newTraceLine(trace, v)
		line.Index, line.Draw = line.Pos-prompt, draw
		t.err = encoder.Encode(line)
	}
	return t, nil
}

// input returns the file that this command reads and that a name leads to.
func (o *options) input(name string) (string, bool) {
	named, err := os.Stat(name)
	if err != nil || !named.Mode().IsRegular() {
		return "", false
	}
	files := append([]string{o.model, o.speculation.model, o.speculation.static, o.speculation.dynamic,
		o.promptFile, o.binaryFile, o.cacheFile}, o.contrast.amateurs...)
	for _, l := range o.loras {
		files = append(files, l.file)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && os.SameFile(named, info) {
			return file, true
		}
	}
	return "", false
}

func newTraceLine(t *sampler.Trace, v *llama.Vocab) traceLine {
	line := traceLine{Pos: t.Draw.Pos, ID: t.Token, Text: tokenText(v, t.Token), Prob: t.Prob, Seed: t.Draw.Seed, Uniform: t.Uniform}
	for _, s := range t.Steps {
		step := traceStep{Name: s.Name, Candidates: s.Count, Row: s.Row, Temperature: s.Temperature}
		for _, x := range s.Top {
			step.Top = append(step.Top, traceCandidate{x.ID, tokenText(v, x.ID), x.Logit, x.Prob})
		}
		line.Steps = append(line.Steps, step)
	}
	return line
}

// close ends the file and returns the first error. No more may be written.
func (t *traceFile) close() error {
	if t == nil {
		return nil
	}
	for _, err := range []error{t.buffer.Flush(), t.file.Close()} {
		if t.err == nil {
			t.err = err
		}
	}
	if t.err != nil {
		return fmt.Errorf("trace %s: %w", t.name, withoutPath(t.err))
	}
	return nil
}
