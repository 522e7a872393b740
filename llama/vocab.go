package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// VocabType is the kind of tokenizer (enum llama_vocab_type).
type VocabType int

func (t VocabType) String() string {
	names := []string{"none", "SPM", "BPE", "WPM", "UGM", "RWKV", "PLaMo-2", "test"}
	if int(t) < 0 || int(t) >= len(names) {
		return fmt.Sprintf("VocabType(%d)", int(t))
	}
	return names[t]
}

// Attributes are the flags of a token (enum llama_token_attr).
type Attributes uint32

// The attributes of tokens.
const (
	AttrUnknown Attributes = 1 << iota
	AttrUnused
	AttrNormal
	AttrControl
	AttrUserDefined
	AttrByte
	AttrNormalized
	AttrLStrip
	AttrRStrip
	AttrSingleWord
)

// A Vocab turns text into tokens and back. It is safe for concurrent use and
// lives as long as its model.
type Vocab struct {
	model  *Model
	handle *C.struct_llama_vocab
	size   int

	text    func() (*pieces, error) // as it is generated: control tokens are empty
	special func() (*pieces, error) // with control tokens written out
	ends    func() map[int32]bool
}

// pieces is the text of all tokens in one block: a token is read without a
// native call and without copying.
type pieces struct {
	text []byte
	ends []int32
}

func (p *pieces) at(id int32) []byte {
	start := int32(0)
	if id > 0 {
		start = p.ends[id-1]
	}
	return p.text[start:p.ends[id]:p.ends[id]]
}

func newVocab(m *Model) *Vocab {
	v := &Vocab{model: m, handle: C.llama_model_get_vocab(m.ptr())}
	v.size = int(C.llama_vocab_n_tokens(v.handle))
	v.text = sync.OnceValues(func() (*pieces, error) { return v.readPieces(false) })
	v.special = sync.OnceValues(func() (*pieces, error) { return v.readPieces(true) })
	v.ends = sync.OnceValue(v.readEndTokens)
	return v
}

func (v *Vocab) ptr() *C.struct_llama_vocab {
	v.model.ptr()
	return v.handle
}

// Size returns the number of tokens. Ids are 0 to Size()-1.
func (v *Vocab) Size() int { return v.size }

// Type returns the kind of tokenizer.
func (v *Vocab) Type() VocabType { return VocabType(C.llama_vocab_type(v.ptr())) }

// Has reports whether id is a token of the vocabulary.
func (v *Vocab) Has(id int32) bool { return id >= 0 && int(id) < v.size }

func (v *Vocab) mustHave(id int32) {
	if !v.Has(id) {
		panic("llama: token outside the vocabulary")
	}
}

// TokenizeOptions are the optional arguments of Vocab.Tokenize.
type TokenizeOptions struct {
	AddSpecial   bool // put BOS and EOS where the model wants them
	ParseSpecial bool // turn the text of control tokens, such as <|im_start|>, into them
}

// Tokenize returns the tokens of text, which may be any bytes. Bytes that are
// not UTF-8 become U+FFFD where the tokenizer cannot spell them.
func (v *Vocab) Tokenize(text string, o TokenizeOptions) ([]int32, error) {
	if len(text) > math.MaxInt32/2 {
		return nil, fmt.Errorf("llama: tokenize: %d bytes of text: want at most %d", len(text), math.MaxInt32/2)
	}
	if v.Type() == 0 {
		return nil, fmt.Errorf("llama: tokenize: this model has no vocabulary")
	}
	// A token is seldom shorter than a byte; BOS, EOS and a leading space come on top.
	out := make([]int32, len(text)+8)
	for {
		n := 0
		err := withFault("tokenize", func(f *C.srt_fault) bool {
			n = int(C.srt_tokenize(v.ptr(), (*C.char)(unsafe.Pointer(unsafe.StringData(text+"\x00"))), C.int32_t(len(text)),
				(*C.llama_token)(unsafe.Pointer(&out[0])), C.int32_t(len(out)), C.bool(o.AddSpecial), C.bool(o.ParseSpecial), f))
			return n == math.MinInt32
		})
		if err != nil && !utf8.ValidString(text) {
			return v.Tokenize(strings.ToValidUTF8(text, "\ufffd"), o)
		}
		if err != nil {
			return nil, err
		}
		if n >= 0 {
			if i := slices.IndexFunc(out[:n], func(id int32) bool { return !v.Has(id) }); i >= 0 {
				return nil, fmt.Errorf("llama: tokenize: the vocabulary has no token for a part of the text, not even an unknown one (id %d)", out[i])
			}
			return out[:n:n], nil
		}
		out = make([]int32, -n)
	}
}

// Piece returns the bytes that token id adds to a text: nothing for a control
// token, possibly a part of a rune. The slice must not be changed. It panics
// if id is outside the vocabulary.
func (v *Vocab) Piece(id int32) []byte { return v.piece(v.text, id) }

// SpecialPiece is Piece with control tokens written out.
func (v *Vocab) SpecialPiece(id int32) []byte { return v.piece(v.special, id) }

func (v *Vocab) piece(all func() (*pieces, error), id int32) []byte {
	v.mustHave(id)
	p, err := all()
	if err != nil {
		panic(err) // the tables of a loaded vocabulary were found inconsistent
	}
	return p.at(id)
}

func (v *Vocab) readPieces(special bool) (*pieces, error) {
	p := &pieces{ends: make([]int32, v.size)}
	if v.size == 0 || v.Type() == 0 { // a model without a tokenizer has ids and no texts
		return p, nil
	}
	for need := 16 * v.size; ; {
		p.text = make([]byte, need)
		if err := v.pieces(0, p, special, &need); err != nil {
			return nil, err
		}
		if need <= len(p.text) {
			p.text = p.text[:need:need]
			return p, nil
		}
	}
}

// pieces reads the texts of len(p.ends) tokens from first on.
func (v *Vocab) pieces(first int32, p *pieces, special bool, need *int) error {
	return withFault("read the vocabulary", func(f *C.srt_fault) bool {
		*need = int(C.srt_pieces(v.ptr(), C.llama_token(first), C.int32_t(len(p.ends)), (*C.char)(unsafe.Pointer(&p.text[0])), C.int64_t(len(p.text)),
			(*C.int32_t)(unsafe.Pointer(&p.ends[0])), C.bool(special), f))
		return *need > math.MaxInt32
	})
}

// Detokenize returns the text of tokens, one behind the other, as generation
// writes it. It panics if a token is outside the vocabulary.
func (v *Vocab) Detokenize(tokens []int32) []byte {
	var text []byte
	for _, id := range tokens {
		text = append(text, v.Piece(id)...)
	}
	return text
}

func (v *Vocab) readEndTokens() map[int32]bool {
	ends := map[int32]bool{}
	if v.size == 0 {
		return ends
	}
	ids := make([]int32, v.size)
	n := 0
	_ = withFault("read the end tokens", func(f *C.srt_fault) bool {
		n = int(C.srt_end_tokens(v.ptr(), (*C.llama_token)(unsafe.Pointer(&ids[0])), C.int32_t(v.size), f))
		return false
	})
	for _, id := range ids[:n] {
		ends[id] = true
	}
	return ends
}

// IsEOG reports whether id ends a generation: EOS, end of turn and the like.
func (v *Vocab) IsEOG(id int32) bool { return v.ends()[id] }

// EndTokens returns all tokens that end a generation, ascending.
func (v *Vocab) EndTokens() []int32 {
	var ids []int32
	for id := range int32(v.size) {
		if v.ends()[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// Attributes returns the flags of a token. It panics if id is outside the vocabulary.
func (v *Vocab) Attributes(id int32) Attributes {
	v.mustHave(id)
	a, _ := v.attributes(id)
	return a
}

func (v *Vocab) attributes(id int32) (a Attributes, err error) {
	err = withFault("read the attributes of a token", func(f *C.srt_fault) bool {
		a = Attributes(C.srt_attributes(v.ptr(), C.llama_token(id), f))
		return false
	})
	return a, err
}

// Score returns the score that the vocabulary gives a token, 0 where it has
// none. It panics if id is outside the vocabulary.
func (v *Vocab) Score(id int32) float32 {
	v.mustHave(id)
	score, _ := v.score(id)
	return score
}

func (v *Vocab) score(id int32) (score float32, err error) {
	err = withFault("read the score of a token", func(f *C.srt_fault) bool {
		score = float32(C.srt_score(v.ptr(), C.llama_token(id), f))
		return false
	})
	return score, err
}

// Special are the tokens with a role; -1 where the model has none.
type Special struct {
	BOS, EOS, EOT, SEP, NL, PAD, Mask       int32
	FIMPrefix, FIMSuffix, FIMMiddle, FIMPad int32
	FIMRepository, FIMSeparator             int32
	AddBOS, AddEOS, AddSEP                  bool // whether the tokenizer puts them around a text
}

// Special returns the tokens with a role.
func (v *Vocab) Special() Special {
	p := v.ptr()
	return Special{
		BOS: int32(C.llama_vocab_bos(p)), EOS: int32(C.llama_vocab_eos(p)), EOT: int32(C.llama_vocab_eot(p)),
		SEP: int32(C.llama_vocab_sep(p)), NL: int32(C.llama_vocab_nl(p)), PAD: int32(C.llama_vocab_pad(p)), Mask: int32(C.llama_vocab_mask(p)),
		FIMPrefix: int32(C.llama_vocab_fim_pre(p)), FIMSuffix: int32(C.llama_vocab_fim_suf(p)), FIMMiddle: int32(C.llama_vocab_fim_mid(p)),
		FIMPad: int32(C.llama_vocab_fim_pad(p)), FIMRepository: int32(C.llama_vocab_fim_rep(p)), FIMSeparator: int32(C.llama_vocab_fim_sep(p)),
		AddBOS: bool(C.llama_vocab_get_add_bos(p)), AddEOS: bool(C.llama_vocab_get_add_eos(p)), AddSEP: bool(C.llama_vocab_get_add_sep(p)),
	}
}

// Suppressed returns the tokens that the model's file says must never be
// generated (tokenizer.ggml.suppress_tokens).
func (v *Vocab) Suppressed() []int32 {
	var n C.int32_t
	p := C.llama_vocab_get_suppress_tokens(v.ptr(), &n)
	if p == nil || n <= 0 {
		return nil
	}
	return append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(p)), int(n))...)
}
