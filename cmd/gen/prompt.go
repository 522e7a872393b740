package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/sortes-llm/sortes/llama"
)

// A promptSource says where a prompt comes from: one of these, or standard
// input.
type promptSource struct {
	text       string // -p
	given      bool   // -p was given, be it empty
	file       string // -f
	binaryFile string // -bf
	escapes    bool   // replace escapes in text
	verbatim   bool   // keep the newline at the end of file and standard input
}

// readPrompt returns the prompt. What is not from a binary file is UTF-8.
func (a *app) readPrompt(s promptSource) (string, error) {
	sources := 0
	for _, given := range []bool{s.given, s.file != "", s.binaryFile != ""} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return "", badUsage("more than one prompt: give one of -p, -f and -bf")
	}
	switch {
	case s.given:
		text := s.text
		if s.escapes {
			text = unescape(text)
		}
		return text, checkUTF8("the prompt", text)
	case s.binaryFile != "":
		text, err := a.readFile(s.binaryFile)
		return string(text), err
	case s.file != "":
		text, err := a.readFile(s.file)
		if err != nil {
			return "", err
		}
		return s.trim(text), checkUTF8("the prompt in "+s.file, string(text))
	case isTerminal(a.stdin):
		return "", nil
	}
	text, err := a.readAll(a.stdin)
	if err != nil {
		return "", fmt.Errorf("the prompt from standard input: %w", err)
	}
	return s.trim(text), checkUTF8("the prompt from standard input", string(text))
}

// trim drops one newline at the end, which editors and echo add.
func (s promptSource) trim(text []byte) string {
	if s.verbatim {
		return string(text)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func (a *app) readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		var text []byte
		if text, err = a.readAll(f); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("the prompt in %s: %w", name, withoutPath(err))
}

// withoutPath is an error of package os without the path, which the message
// around it has.
func withoutPath(err error) error {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// readAll is io.ReadAll, interrupted by the app's context.
func (a *app) readAll(r io.Reader) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(r)
		done <- result{text, err}
	}()
	select {
	case read := <-done:
		return read.text, read.err
	case <-a.ctx.Done():
		return nil, context.Cause(a.ctx)
	}
}

// checkUTF8 names the first byte that is not UTF-8.
func checkUTF8(what, text string) error {
	if at := invalidUTF8(text); at >= 0 {
		return badUsage("%s is not UTF-8: byte %d is 0x%02x; --binary-file takes any bytes", what, at, text[at])
	}
	return nil
}

// invalidUTF8 returns where the first byte stands that is not UTF-8, or -1.
func invalidUTF8(text string) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// unescape replaces \n, \r, \t, \', \", \\ and \xHH, as llama.cpp's
// string_process_escapes does. Other backslashes stay.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	plain := map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '\'': '\'', '"': '"', '\\': '\\'}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		if b, ok := plain[text[i+1]]; ok {
			out = append(out, b)
			i++
			continue
		}
		if text[i+1] == 'x' && i+3 < len(text) && isHex(text[i+2]) && isHex(text[i+3]) {
			out = append(out, hexValue(text[i+2])<<4|hexValue(text[i+3]))
			i += 3
			continue
		}
		out = append(out, '\\')
	}
	return string(out)
}

func isHex(b byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", b) >= 0 }

func hexValue(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b&7 + 9
}

// checkLength reports that a prompt is longer than the context.
func checkLength(what string, tokens []int32, context int) error {
	if len(tokens) <= context {
		return nil
	}
	return fmt.Errorf("the %s has %d tokens and the context holds %d: shorten it, or choose a larger context with -c", what, len(tokens), context)
}

// promptTokens tokenises a prompt.
func promptTokens(v *llama.Vocab, text string) ([]int32, error) {
	tokens, err := textTokens(v, text)
	if err == nil && len(tokens) == 0 {
		err = badUsage("the prompt is empty, and this model does not begin a text by itself: give one with -p, -f or through a pipe")
	}
	return tokens, err
}

// textTokens tokenises what a text begins with. An empty one is the token that
// begins a text, where the model has it put there, else nothing.
func textTokens(v *llama.Vocab, text string) ([]int32, error) {
	tokens, err := v.Tokenize(text, llama.TokenizeOptions{AddSpecial: true, ParseSpecial: true})
	if err != nil {
		return nil, err
	}
	special := v.Special()
	if n := len(tokens); n > 0 && special.AddEOS && tokens[n-1] == special.EOS {
		tokens = tokens[:n-1] // the text is to go on
	}
	if len(tokens) == 0 && special.AddBOS && special.BOS >= 0 {
		tokens = []int32{special.BOS}
	}
	return tokens, nil
}
