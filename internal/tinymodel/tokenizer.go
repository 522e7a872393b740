package tinymodel

import (
	"fmt"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// A Tokenizer is a way to cut text into tokens. Each can spell any text in
// bytes and has a few longer tokens.
type Tokenizer int

const (
	// BPE is byte-level, as in GPT-2: text comes back exactly.
	BPE Tokenizer = iota
	// SPM is that of Llama 2, with a token <0x00> to <0xFF> for every byte and
	// U+2581 for a space; a U+2581 in the text comes back as a space.
	SPM

	wordPieces // of Encoder
)

// Tokens with a meaning, the same in BPE and SPM.
const (
	Unknown int32 = 0
	BOS     int32 = 1 // begins a text, added by the tokenizer
	EOS     int32 = 2 // ends a text
	EOT     int32 = 3 // ends a turn
	Tool    int32 = 4 // user-defined: plain text <tool> that is one token
	Byte    int32 = 5 // the first of the 256 tokens of one byte, in order
)

// What a token may be, as llama.cpp numbers it.
const (
	normal      int32 = 1
	unknown     int32 = 2
	control     int32 = 3
	userDefined int32 = 4
	single      int32 = 6 // a byte
)

// words are made by merges of two, of letters or of earlier words. The ones of
// BPE need their parts.
var words = [][2]string{
	{"t", "h"}, {"th", "e"}, {"i", "n"}, {"e", "r"}, {"a", "n"}, {"an", "d"}, {"o", "n"}, {"in", "g"},
	{"o", "u"}, {"h", "a"}, {"r", "e"}, {"e", "n"}, {"s", "t"}, {" ", "the"}, {" ", "and"}, {" ", "a"},
	{" ", "s"}, {" ", "w"}, {"o", "r"}, {" ", "o"}, {"l", "l"}, {"a", "t"}, {"a", "l"}, {"e", "s"},
	{" ", "in"}, {"l", "e"}, {" ", "b"}, {" ", "ha"}, {" ", "st"}, {" ", "c"}, {"\n", "\n"}, {"\xc3", "\xa9"},
	{" ", "m"}, {"i", "t"}, {"i", "s"}, {" ", "h"}, {"er", "e"}, {"v", "e"}, {" ", "f"},
}

// Vocab is the number of tokens of BPE and SPM.
var Vocab = int(Byte) + 256 + len(words)

// entries returns the metadata of a tokenizer, the list of tokens first.
func (t Tokenizer) entries() []gguf.KV {
	if t == wordPieces {
		return wordPieceEntries()
	}
	tokens := []string{"<unk>", "<s>", "</s>", "<|im_end|>", "<tool>"}
	kinds := []int32{unknown, control, control, control, userDefined}
	scores := make([]float32, len(tokens))
	for i := range 256 {
		switch {
		case t == BPE:
			tokens = append(tokens, printable(string([]byte{byte(i)})))
			kinds = append(kinds, normal)
		case i == ' ':
			tokens = append(tokens, "\u2581") // the spelling in bytes would stay what it is
			kinds = append(kinds, normal)
		default:
			tokens = append(tokens, fmt.Sprintf("<0x%02X>", i))
			kinds = append(kinds, single)
		}
		scores = append(scores, 0)
	}
	var merges []string
	for i, w := range words {
		text := w[0] + w[1]
		if t == SPM {
			text = escaped(text)
		} else {
			text = printable(text)
		}
		tokens = append(tokens, text)
		kinds = append(kinds, normal)
		scores = append(scores, -float32(i))
		merges = append(merges, printable(w[0])+" "+printable(w[1]))
	}
	entries := []gguf.KV{
		gguf.NewKV("tokenizer.ggml.tokens", tokens),
		gguf.NewKV("tokenizer.ggml.token_type", kinds),
		gguf.NewKV("tokenizer.ggml.bos_token_id", uint32(BOS)),
		gguf.NewKV("tokenizer.ggml.eos_token_id", uint32(EOS)),
		gguf.NewKV("tokenizer.ggml.eot_token_id", uint32(EOT)),
		gguf.NewKV("tokenizer.ggml.unknown_token_id", uint32(Unknown)),
		gguf.NewKV("tokenizer.ggml.add_bos_token", true),
		gguf.NewKV("tokenizer.ggml.add_eos_token", false),
		gguf.NewKV("tokenizer.ggml.add_space_prefix", false),
		gguf.NewKV("tokenizer.chat_template", chatTemplate),
	}
	if t == SPM {
		return append(entries,
			gguf.NewKV("tokenizer.ggml.model", "llama"),
			gguf.NewKV("tokenizer.ggml.scores", scores))
	}
	return append(entries,
		gguf.NewKV("tokenizer.ggml.model", "gpt2"),
		gguf.NewKV("tokenizer.ggml.pre", "smollm"),
		gguf.NewKV("tokenizer.ggml.merges", merges))
}

const chatTemplate = "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<s>assistant\n{% endif %}"

// likely scales what a model's output says about a token: greedy text does not
// end and is mostly readable, while a draw may give any token.
func likely(token int32) float64 {
	switch c := token - Byte; {
	case token <= EOT:
		return 0
	case token == Tool || c < 256 && c != '\n' && (c < ' ' || c > '~'):
		return 0.25
	}
	return 1
}

// printable writes bytes the way GPT-2 does, each as a character that can be
// seen: itself where it can, one of U+0100 and up where it cannot.
func printable(s string) string {
	var out []rune
	for _, c := range []byte(s) {
		out = append(out, byteRune[c])
	}
	return string(out)
}

var byteRune = func() (runes [256]rune) {
	next := rune(0x100)
	for i := range runes {
		c := rune(i)
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			runes[i] = c
			continue
		}
		runes[i] = next
		next++
	}
	return runes
}()

// escaped writes a text the way SPM does, with U+2581 for a space.
func escaped(s string) string {
	out := ""
	for _, c := range []byte(s) {
		if c == ' ' {
			out += "\u2581"
		} else {
			out += string([]byte{c})
		}
	}
	return out
}

// wordPieceEntries returns a vocabulary of BERT's kind, of words and letters.
func wordPieceEntries() []gguf.KV {
	tokens := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
	kinds := []int32{control, unknown, control, control, control}
	for c := rune(33); c < 127; c++ {
		if c >= 'A' && c <= 'Z' {
			continue // the tokenizer knows small letters only
		}
		tokens = append(tokens, "\u2581"+string(c))
		if c >= 'a' && c <= 'z' {
			tokens = append(tokens, string(c))
		}
	}
	for _, w := range []string{"the", "and", "a b", "in", "is", "of", "to", "cat", "dog", "king", "queen"} {
		tokens = append(tokens, "\u2581"+w)
	}
	for len(kinds) < len(tokens) {
		kinds = append(kinds, normal)
	}
	return []gguf.KV{
		gguf.NewKV("tokenizer.ggml.tokens", tokens),
		gguf.NewKV("tokenizer.ggml.token_type", kinds),
		gguf.NewKV("tokenizer.ggml.token_type_count", uint32(1)),
		gguf.NewKV("tokenizer.ggml.model", "bert"),
		gguf.NewKV("tokenizer.ggml.padding_token_id", uint32(0)),
		gguf.NewKV("tokenizer.ggml.unknown_token_id", uint32(1)),
		gguf.NewKV("tokenizer.ggml.bos_token_id", uint32(2)),
		gguf.NewKV("tokenizer.ggml.cls_token_id", uint32(2)),
		gguf.NewKV("tokenizer.ggml.seperator_token_id", uint32(3)),
		gguf.NewKV("tokenizer.ggml.mask_token_id", uint32(4)),
	}
}
