package llama

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

var texts = []string{
	"", " ", "  ", "\n", "\t\r\n", "a", "The quick brown fox.", " leading and trailing ", "e\u0301", "naïve café", "日本語のテキスト", "Ελληνικά", "עברית",
	"👍🏽 👩‍👩‍👧 🇩🇪", "\U0010FFFF\u200b\ufeff", "0123456789 1,000.5e-7", "<|none|>", "{\"json\": [1, 2]}", strings.Repeat("ab ", 500),
	"\x00", "nul\x00in the middle", "\u007f\u0080",
}

var notUTF8 = []string{"\xff", "\xc3", "a\x80b", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok \xe2\x82 cut", "\xc0\xaf"}

// Any text comes back from its tokens byte by byte.
func TestTokenizeAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := append(append([]string(nil), texts...), notUTF8...)
	for range 100 {
		var b strings.Builder
		for range r.IntN(40) {
			b.WriteRune(rune(0x20 + r.IntN(0x3000))) // SmolLM2 has no tokens for some control characters
		}
		all = append(all, b.String())
	}
	for name, m := range map[string]*Model{
		"real": realModel(t),
		"BPE":  tinyModel(t, "llama"),
		"SPM":  openOnce(t, tinymodel.Save(tinyDir, "spm.gguf", tinymodel.Llama(tinymodel.Options{Tokenizer: tinymodel.SPM}))),
	} {
		v := m.Vocab()
		for _, text := range all {
			tokens, err := v.Tokenize(text, TokenizeOptions{})
			require.NoError(t, err)
			got := string(v.Detokenize(tokens))
			if !utf8.ValidString(text) { // what stands for the rest is llama.cpp's choice
				require.Equal(t, letters(text), letters(got), "%s: %q", name, text)
				continue
			}
			require.Equal(t, text, got, "%s: %q", name, text)
		}
	}
}

func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, text)
}

func TestTokenizeSpecial(t *testing.T) {
	v := tinyModel(t, "llama").Vocab()
	tokenize := func(text string, o TokenizeOptions) []int32 {
		tokens, err := v.Tokenize(text, o)
		require.NoError(t, err)
		return tokens
	}
	the := tinymodel.Byte + 256 + 1 // "the" is the second of the words
	require.Equal(t, []int32{the}, tokenize("the", TokenizeOptions{}))
	require.Equal(t, []int32{tinymodel.BOS, the}, tokenize("the", TokenizeOptions{AddSpecial: true}))
	require.Equal(t, []int32{tinymodel.BOS}, tokenize("", TokenizeOptions{AddSpecial: true}))
	require.Equal(t, []int32{the, tinymodel.EOS, the}, tokenize("the</s>the", TokenizeOptions{ParseSpecial: true}))
	require.Equal(t, []int32{the, tinymodel.EOT}, tokenize("the<|im_end|>", TokenizeOptions{ParseSpecial: true}))
	plain := tokenize("the</s>", TokenizeOptions{})
	require.NotContains(t, plain, tinymodel.EOS)
	require.Equal(t, "the</s>", string(v.Detokenize(plain)))
	require.Equal(t, []int32{tinymodel.Tool}, tokenize("<tool>", TokenizeOptions{}), "user-defined tokens are text")

	r := realModel(t).Vocab()
	tokens, err := r.Tokenize("<|im_start|>user\nHi<|im_end|>", TokenizeOptions{ParseSpecial: true})
	require.NoError(t, err)
	require.Equal(t, int32(1), tokens[0])
	require.Equal(t, int32(2), tokens[len(tokens)-1])
	tokens, err = r.Tokenize("<|im_start|>", TokenizeOptions{})
	require.NoError(t, err)
	require.NotContains(t, tokens, int32(1))
}

func TestPieces(t *testing.T) {
	v := tinyModel(t, "llama").Vocab()
	require.Equal(t, tinymodel.Vocab, v.Size())
	require.Equal(t, "BPE", v.Type().String())
	for id, want := range map[int32]string{
		tinymodel.BOS: "", tinymodel.EOS: "", tinymodel.EOT: "", tinymodel.Tool: "<tool>",
		tinymodel.Byte: "\x00", tinymodel.Byte + 'a': "a", tinymodel.Byte + 0xff: "\xff", tinymodel.Byte + ' ': " ",
		tinymodel.Byte + 256: "th", tinymodel.Byte + 256 + 13: " the",
	} {
		require.Equal(t, want, string(v.Piece(id)), "token %d", id)
	}
	for id, want := range map[int32]string{tinymodel.BOS: "<s>", tinymodel.EOS: "</s>", tinymodel.EOT: "<|im_end|>", tinymodel.Tool: "<tool>", tinymodel.Byte + 'a': "a"} {
		require.Equal(t, want, string(v.SpecialPiece(id)), "token %d", id)
	}
	for id := range int32(v.Size()) {
		p := v.Piece(id)
		require.Equal(t, len(p), cap(p), "appending to a piece must not touch the next")
	}
	require.Empty(t, v.Detokenize(nil))

	spm := openOnce(t, tinymodel.Save(tinyDir, "spm.gguf", tinymodel.Llama(tinymodel.Options{Tokenizer: tinymodel.SPM}))).Vocab()
	require.Equal(t, "SPM", spm.Type().String())
	require.Equal(t, "\xff", string(spm.Piece(tinymodel.Byte+0xff)))
	require.Equal(t, " the", string(spm.Piece(tinymodel.Byte+256+13)))
	require.Equal(t, "WPM", tinyModel(t, "encoder").Vocab().Type().String())
	require.Equal(t, "VocabType(77)", VocabType(77).String())

	// All pieces of the real vocabulary, against llama.cpp's one by one.
	r := realModel(t).Vocab()
	require.Equal(t, 49152, r.Size())
	for id := int32(0); id < int32(r.Size()); id += 97 {
		p := &pieces{ends: make([]int32, 1), text: make([]byte, 300)}
		need := 0
		require.NoError(t, r.pieces(id, p, false, &need))
		require.Equal(t, string(p.text[:need]), string(r.Piece(id)), "token %d", id)
	}
}

// Long pieces make the table grow while it is read.
func TestLongPieces(t *testing.T) {
	long := strings.Repeat("long", 900)
	path := rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		for i, kv := range kvs {
			if kv.Key == "tokenizer.ggml.tokens" {
				var tokens []string
				for v := range kv.Value.All() {
					text, _ := v.Text()
					tokens = append(tokens, text)
				}
				tokens[tinymodel.Tool] = long
				tokens[0], tokens[len(tokens)-1] = long+"0", long+"1"
				kvs[i] = gguf.NewKV(kv.Key, tokens)
			}
		}
		return kvs, tensors
	})
	v := open(t, path, ModelOptions{}).Vocab()
	require.Equal(t, long, string(v.Piece(tinymodel.Tool)))
	require.Equal(t, long+"1", string(v.Piece(int32(v.Size()-1))))
	require.Equal(t, "a", string(v.Piece(tinymodel.Byte+'a')))
	require.Equal(t, "</s>", string(v.SpecialPiece(tinymodel.EOS)))
}

func TestRolesOfTokens(t *testing.T) {
	v := tinyModel(t, "llama").Vocab()
	s := v.Special()
	require.Equal(t, Special{
		BOS: tinymodel.BOS, EOS: tinymodel.EOS, EOT: tinymodel.EOT, SEP: -1, NL: s.NL, PAD: -1, Mask: -1,
		FIMPrefix: -1, FIMSuffix: -1, FIMMiddle: -1, FIMPad: -1, FIMRepository: -1, FIMSeparator: -1, AddBOS: true,
	}, s)
	require.Equal(t, []int32{tinymodel.EOS, tinymodel.EOT}, v.EndTokens())
	require.True(t, v.IsEOG(tinymodel.EOT))
	require.False(t, v.IsEOG(tinymodel.BOS))
	require.Empty(t, v.Suppressed())

	require.NotZero(t, v.Attributes(tinymodel.BOS)&AttrControl)
	require.NotZero(t, v.Attributes(tinymodel.Tool)&AttrUserDefined)
	require.NotZero(t, v.Attributes(tinymodel.Byte+'a')&AttrNormal)
	spm := openOnce(t, tinymodel.Save(tinyDir, "spm.gguf", tinymodel.Llama(tinymodel.Options{Tokenizer: tinymodel.SPM}))).Vocab()
	require.NotZero(t, spm.Attributes(tinymodel.Byte)&AttrByte)
	require.Equal(t, float32(-7), spm.Score(tinymodel.Byte+256+7))

	r := realModel(t).Vocab()
	var ends []string
	for _, id := range r.EndTokens() {
		ends = append(ends, string(r.SpecialPiece(id)))
	}
	require.Equal(t, []string{"<|endoftext|>", "<|im_end|>", "<reponame>"}, ends)
	require.Equal(t, int32(2), r.Special().EOS)

	path := rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		return setKV(kvs, "tokenizer.ggml.suppress_tokens", []int32{7, 9}), tensors
	})
	require.Equal(t, []int32{7, 9}, open(t, path, ModelOptions{}).Vocab().Suppressed())
}

func TestTokenizeLongTexts(t *testing.T) {
	v := tinyModel(t, "llama").Vocab()
	text := strings.Repeat("x y", 100000)
	tokens, err := v.Tokenize(text, TokenizeOptions{AddSpecial: true})
	require.NoError(t, err)
	require.Equal(t, text, string(v.Detokenize(tokens)))
	_, err = Open(context.Background(), tinyPath(t, "llama"), ModelOptions{VocabOnly: true, Overrides: map[string]any{"tokenizer.ggml.model": "none such"}})
	require.ErrorContains(t, err, "unknown tokenizer: 'none such'")
}

// These pre-tokenizers recurse for every character of a run, which ends the
// process on a stack of 8 MiB.
func TestTokenizeLongRuns(t *testing.T) {
	for pre, char := range map[string]string{"default": "1", "deepseek-llm": "a", "tekken": "é", "falcon": "!", "gpt-4o": "漢"} {
		m, err := Open(context.Background(), rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
			return setKV(kvs, "tokenizer.ggml.pre", pre), tensors
		}), ModelOptions{VocabOnly: true})
		require.NoError(t, err)
		text := strings.Repeat(char, 100_000)
		tokens, err := m.Vocab().Tokenize(text, TokenizeOptions{})
		require.NoError(t, err)
		require.Equal(t, text, string(m.Vocab().Detokenize(tokens)), pre)
		m.Close()
	}
}

// A model may come without a tokenizer: its tokens have ids and nothing else.
func TestVocabOfNoTokenizer(t *testing.T) {
	v := openOnce(t, rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		kvs = setKV(kvs, "llama.vocab_size", uint32(tinymodel.Vocab))
		return setKV(kvs, "tokenizer.ggml.model", "no_vocab"), tensors
	})).Vocab()
	require.Equal(t, tinymodel.Vocab, v.Size())
	require.Empty(t, v.EndTokens())
	for id := range int32(v.Size()) {
		require.Empty(t, v.Piece(id))
		require.Empty(t, v.SpecialPiece(id))
		require.Zero(t, v.Attributes(id))
		require.Zero(t, v.Score(id))
	}
	_, err := v.Tokenize("a", TokenizeOptions{})
	require.EqualError(t, err, "llama: tokenize: this model has no vocabulary")
}

// llama.cpp gives -1 for what a vocabulary without an unknown token cannot spell.
func TestTokenizeWithoutUnknownToken(t *testing.T) {
	m, err := Open(context.Background(), rewritten(t, "llama", func(kvs []gguf.KV, _ []gguf.Data) ([]gguf.KV, []gguf.Data) {
		kvs = slices.DeleteFunc(kvs, func(kv gguf.KV) bool {
			return kv.Key == "tokenizer.ggml.token_type" || kv.Key == "tokenizer.ggml.unknown_token_id"
		})
		kvs = setKV(kvs, "tokenizer.ggml.model", "rwkv")
		return setKV(kvs, "tokenizer.ggml.tokens", []string{`\n`, "a"}), nil
	}), ModelOptions{VocabOnly: true})
	require.NoError(t, err)
	defer m.Close()
	tokens, err := m.Vocab().Tokenize("a\na", TokenizeOptions{})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 0, 1}, tokens)
	_, err = m.Vocab().Tokenize("ab", TokenizeOptions{})
	require.EqualError(t, err, "llama: tokenize: the vocabulary has no token for a part of the text, not even an unknown one (id -1)")
}
