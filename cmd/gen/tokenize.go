package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/llama"
)

// tokenizeCommand makes gen tokenize, with the flags of llama-tokenize.
func (a *app) tokenizeCommand() *cli.Command {
	var (
		p             parser
		model         string
		source        = promptSource{escapes: true}
		noBOS, noText bool
		plain, count  bool
		decode        []int32
		asJSON        bool
	)
	p.settings = []*setting{
		{names: "-m, --model", arg: "FILE", env: "LLAMA_ARG_MODEL", group: "flags", value: fileValue(&model), usage: "the model, a GGUF file; only its vocabulary is loaded"},
		{names: "-p, --prompt", arg: "TEXT", group: "flags", value: textValue(&source.text), usage: "the text; without one of -p, -f and -bf it is read from standard input"},
		{names: "-f, --file", arg: "FILE", group: "flags", value: fileValue(&source.file), usage: "read the text from a file"},
		{names: "-bf, --binary-file", arg: "FILE", group: "flags", value: fileValue(&source.binaryFile), usage: "read the text from a file, also if it is not UTF-8"},
		{names: "-e, --escape", off: "--no-escape", group: "flags", value: switchValue(&source.escapes, true), usage: `replace \n, \r, \t, \', \", \\ and \xHH in -p`},
		{names: "--no-bos", group: "flags", value: switchValue(&noBOS, true), usage: "add no BOS or EOS token"},
		{names: "--no-parse-special", group: "flags", value: switchValue(&plain, true), usage: "take control tokens such as <|im_end|> for text"},
		{names: "--ids", group: "flags", value: switchValue(&noText, true), usage: "write only the ids, in one line"},
		{names: "--show-count", group: "flags", value: switchValue(&count, true), usage: "write the number of tokens at the end"},
		{names: "--decode", arg: "ID,...", group: "flags", value: listValue(&decode, parseIDs, func(id int32) string { return fmt.Sprint(id) }), usage: "the other way: write the text of these tokens"},
		{names: "--json", group: "flags", value: switchValue(&asJSON, true), usage: "a JSON object for each token"},
	}
	return subcommand("tokenize", "the tokens of a text", "-m FILE -p TEXT", &p, a, func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("%q: the text follows -p", c.Args().First())
		}
		if model == "" {
			return badUsage("no model: give a GGUF file with -m FILE")
		}
		if p.given("--decode") {
			return a.decode(model, decode)
		}
		source.given = p.given("--prompt")
		source.verbatim = true
		text, err := a.readPrompt(source)
		if err != nil {
			return err
		}
		m, err := a.open("-m", model, llama.ModelOptions{VocabOnly: true})
		if err != nil {
			return err
		}
		defer m.Close()
		tokens, err := m.Vocab().Tokenize(text, llama.TokenizeOptions{AddSpecial: !noBOS, ParseSpecial: !plain})
		if err != nil {
			return err
		}
		var out bytes.Buffer
		switch {
		case asJSON:
			encoder := json.NewEncoder(&out)
			encoder.SetEscapeHTML(false)
			for _, id := range tokens {
				if err := encoder.Encode(newJSONPiece(m.Vocab(), id)); err != nil {
					return err
				}
			}
		case noText:
			fmt.Fprintln(&out, strings.ReplaceAll(fmt.Sprint(tokens), " ", ", "))
		default:
			listTokens(&out, m.Vocab(), tokens)
		}
		if count && !asJSON {
			fmt.Fprintf(&out, "%d tokens\n", len(tokens))
		}
		return a.write(out.Bytes())
	})
}

// A jsonPiece is a token and its text. Bytes are given where the text is not
// all of it: a part of a rune.
type jsonPiece struct {
	ID    int32  `json:"id"`
	Text  string `json:"text"`
	Bytes []int  `json:"bytes,omitempty"`
}

func newJSONPiece(v *llama.Vocab, id int32) jsonPiece {
	piece := v.SpecialPiece(id)
	p := jsonPiece{ID: id, Text: strings.ToValidUTF8(string(piece), "\uFFFD")}
	if !utf8.Valid(piece) {
		for _, b := range piece {
			p.Bytes = append(p.Bytes, int(b))
		}
	}
	return p
}

// decode writes the text of tokens, which may be any bytes.
func (a *app) decode(model string, ids []int32) error {
	m, err := a.open("-m", model, llama.ModelOptions{VocabOnly: true})
	if err != nil {
		return err
	}
	defer m.Close()
	v := m.Vocab()
	var text []byte
	for _, id := range ids {
		if !v.Has(id) {
			return badUsage("--decode %d: the vocabulary has %d tokens, 0 to %d", id, v.Size(), v.Size()-1)
		}
		text = append(text, v.SpecialPiece(id)...)
	}
	return a.write(text)
}

// parseIDs reads token ids as --ids writes them, with or without the brackets.
func parseIDs(text string) ([]int32, error) {
	var ids []int32
	for item := range strings.SplitSeq(strings.Trim(text, "[] "), ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(item), 10, 64)
		if err != nil || id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("want token ids of 0 or more, separated by commas")
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
