package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// inspectCommand makes gen inspect.
func (a *app) inspectCommand() *cli.Command {
	var p parser
	var asJSON bool
	p.settings = []*setting{
		{names: "--json", group: "flags", value: switchValue(&asJSON, true), usage: "one JSON object; of arrays the first elements"},
	}
	return subcommand("inspect", "metadata and tensors of a GGUF file, also of a broken one as far as it can be read", "FILE", &p, a, func(c *cli.Context) error {
		if c.NArg() != 1 {
			return badUsage("inspect: want one file, got %d", c.NArg())
		}
		name := c.Args().First()
		file, err := gguf.ReadFile(name)
		if file == nil {
			return fmt.Errorf("inspect %s: %w", name, withoutPath(err))
		}
		if err == nil {
			err = file.Check()
		}
		if err != nil {
			err = fmt.Errorf("inspect %s: %w", name, err)
		}
		var out bytes.Buffer
		if asJSON {
			encodeFile(&out, name, file, err)
		} else {
			describeFile(&out, name, file)
		}
		if writeErr := a.write(out.Bytes()); writeErr != nil {
			return writeErr
		}
		return err
	})
}

// describeFile writes a file for a reader.
func describeFile(w io.Writer, name string, f *gguf.File) {
	fmt.Fprintf(w, "%s: %d bytes, GGUF version %d\n", name, f.Size, f.Version)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintf(table, "\n%d entries of metadata\n", len(f.KVs))
	for _, kv := range f.KVs {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", printable(kv.Key), kindName(kv.Value), abridged(kv.Value.String(), 100))
	}
	table.Flush()
	fmt.Fprintf(table, "\n%d tensors, their data from byte %d in steps of %d\n", len(f.Tensors), f.DataOffset, f.Alignment)
	for _, t := range f.Tensors {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%d bytes at %d\n", printable(t.Name), t.Type, shape(t), t.Size, t.Offset)
	}
}

func kindName(v gguf.Value) string {
	if v.Kind == gguf.KindArray {
		return fmt.Sprintf("%v[%d]", v.Elem, v.Len())
	}
	return v.Kind.String()
}

// printable shows a name from a file that may lie.
func printable(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` && name != "" {
		return name
	}
	return quoted
}

// abridged cuts a long text.
func abridged(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%d characters)", string(runes[:most]), len(runes))
}

func shape(t gguf.Tensor) string {
	var dims []string
	for _, d := range t.Shape {
		dims = append(dims, fmt.Sprint(d))
	}
	return strings.Join(dims, " x ")
}

type jsonFile struct {
	File       string       `json:"file"`
	Bytes      int64        `json:"bytes"`
	Version    uint32       `json:"version"`
	Alignment  int64        `json:"alignment"`
	DataOffset int64        `json:"data_offset"`
	Metadata   []jsonEntry  `json:"metadata"`
	Tensors    []jsonTensor `json:"tensors"`
	Error      string       `json:"error,omitempty"`
}

type jsonEntry struct {
	Key    string `json:"key"`
	Type   string `json:"type"`
	Length int    `json:"length,omitempty"` // of an array
	Value  any    `json:"value"`            // of an array the first elements
}

type jsonTensor struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
	Offset int64   `json:"offset"`
}

func encodeFile(w io.Writer, name string, f *gguf.File, err error) {
	const shown = 16
	file := jsonFile{
		File: name, Bytes: f.Size, Version: f.Version, Alignment: f.Alignment, DataOffset: f.DataOffset,
		Metadata: []jsonEntry{}, Tensors: []jsonTensor{},
	}
	for _, kv := range f.KVs {
		entry := jsonEntry{Key: kv.Key, Type: kv.Value.Kind.String()}
		if kv.Value.Kind == gguf.KindArray {
			entry.Type, entry.Length = kv.Value.Elem.String()+"[]", kv.Value.Len()
			values := []any{}
			for v := range kv.Value.All() {
				if len(values) == shown {
					break
				}
				values = append(values, jsonValue(v))
			}
			entry.Value = values
		} else {
			entry.Value = jsonValue(kv.Value)
		}
		file.Metadata = append(file.Metadata, entry)
	}
	for _, t := range f.Tensors {
		file.Tensors = append(file.Tensors, jsonTensor{t.Name, t.Type.String(), t.Shape, t.Size, t.Offset})
	}
	if err != nil {
		file.Error = describe(err)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(file) // plain values, to a buffer
}

// jsonValue is a scalar as JSON has it; a number that JSON cannot write, such
// as NaN, is text.
func jsonValue(v gguf.Value) any {
	if text, ok := v.Text(); ok {
		return text
	}
	text := v.String()
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}
