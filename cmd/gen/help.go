package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sortes-llm/sortes/sampler"
)

// example is a command line that works in a clone of the repository.
const example = `bin/gen -m models/SmolLM2-135M-Instruct-Q4_1.gguf -p "The capital of France is" -n 32`

const shortUsage = `gen generates text from a GGUF model. For example, after "make demo" in a clone of sortes:

  ` + example + `

gen -h lists all flags.
`

// writeHelp lists flags under their headings: the names on the left, on the
// right what they mean, the default and the variable.
func writeHelp(w io.Writer, head string, settings []*setting) {
	const left, width = 34, 110
	fmt.Fprint(w, head)
	for i, s := range settings {
		if s.group == "" {
			continue
		}
		if i == 0 || s.group != settings[i-1].group {
			fmt.Fprintf(w, "\n%s:\n", strings.ToUpper(s.group[:1])+s.group[1:])
		}
		names := s.names
		if s.off != "" {
			names += ", " + s.off
		}
		if s.arg != "" {
			names += " " + s.arg
		}
		column := "  " + names
		for _, line := range wrap(s.meaning(), width-left) {
			if len(column) >= left {
				fmt.Fprintln(w, column)
				column = ""
			}
			fmt.Fprintf(w, "%-*s%s\n", left, column, line)
			column = ""
		}
	}
}

// meaning is the usage with the default and the variable.
func (s *setting) meaning() string {
	text := s.usage
	if s.preset != "" && (s.arg != "" || s.preset != "off") {
		text += " (default: " + s.preset + ")"
	}
	if s.env != "" {
		text += " [" + s.env + "]"
	}
	return text
}

// wrap breaks text into lines of at most width bytes where words allow, or the
// semicolons of one that is longer.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		for len(word) > width {
			at := strings.LastIndexByte(word[:width], ';') + 1
			if at == 0 {
				break
			}
			if line != "" {
				lines = append(lines, line)
			}
			lines, line, word = append(lines, word[:at]), "", word[at:]
		}
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// oneLine quotes a text that holds more than printable characters.
func oneLine(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// writeExplanation lists the settings and where each comes from, and the chain
// that follows from them.
func (o *options) writeExplanation(w io.Writer, c sampler.Config) error {
	chain, err := sampler.New(c)
	if err != nil {
		return err
	}
	for _, s := range o.settings {
		if s.group == "" || s.of != nil || s.name() == "--help" || s.name() == "--version" {
			continue
		}
		from := s.from()
		if s.note != "" {
			from += " (" + s.note + ")"
		}
		value := s.get()
		if value == "" {
			value = "-"
		} else {
			value = abridged(oneLine(value), 60)
		}
		fmt.Fprintf(w, "%-22s %-40s %s\n", s.name(), value, from)
	}
	fmt.Fprintf(w, "the filters that run: %v\n", chain)
	return nil
}
