package grammar

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
)

// A Vocab says what tokens mean.
type Vocab interface {
	Size() int                    // ids are 0 to Size()-1
	Piece(id int32) []byte        // the bytes that a token adds to a text
	SpecialPiece(id int32) []byte // the same with control tokens written out
	IsEOG(id int32) bool          // whether it ends a text
}

// A Vocabulary is a [Vocab] made ready for grammars. It is worth keeping: for
// the first token where a grammar allows many, all tokens are sorted. It is
// safe for concurrent use if the Vocab is.
type Vocabulary struct {
	pieces [][]byte
	ends   []bool
	vocab  Vocab
	sort   func() ([]int32, []int32)
}

// NewVocabulary reads the pieces of a vocabulary.
func NewVocabulary(v Vocab) *Vocabulary {
	n := v.Size()
	w := &Vocabulary{pieces: make([][]byte, n), ends: make([]bool, n), vocab: v}
	for id := range int32(n) {
		w.pieces[id], w.ends[id] = v.Piece(id), v.IsEOG(id)
	}
	type sorted struct{ order, common []int32 }
	all := sync.OnceValue(func() sorted {
		order, common := w.sorted()
		return sorted{order, common}
	})
	w.sort = func() ([]int32, []int32) { s := all(); return s.order, s.common }
	return w
}

func (v *Vocabulary) size() int             { return len(v.pieces) }
func (v *Vocabulary) has(id int32) bool     { return id >= 0 && int(id) < len(v.pieces) }
func (v *Vocabulary) piece(id int32) []byte { return v.pieces[id] }
func (v *Vocabulary) isEnd(id int32) bool   { return v.ends[id] }

// order returns the tokens that add bytes and do not end a text, by their
// bytes, and how many bytes each has in common with the one before it.
func (v *Vocabulary) order() (ids, common []int32) { return v.sort() }

func (v *Vocabulary) sorted() (ids, common []int32) {
	for id := range int32(v.size()) {
		if len(v.pieces[id]) > 0 && !v.ends[id] {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int32) int { return bytes.Compare(v.pieces[a], v.pieces[b]) })
	common = make([]int32, len(ids))
	for i := 1; i < len(ids); i++ {
		a, b := v.pieces[ids[i-1]], v.pieces[ids[i]]
		n := 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		common[i] = int32(n)
	}
	return ids, common
}

// token returns the token whose text is this.
func (v *Vocabulary) token(text string) (int32, error) {
	for id := range int32(v.size()) {
		if string(v.vocab.SpecialPiece(id)) == text {
			return id, nil
		}
	}
	return 0, fmt.Errorf("%s is no token of this vocabulary", text)
}
