package tablemodel

import "slices"

// Ids of Pieces that tests name.
const (
	BOS  = 0
	EOS  = 1
	EOT  = 2
	Text = 3 // the first piece with text
)

// Pieces are the texts of a small vocabulary that has what makes text hard:
// pieces without text, pieces that end or begin inside a rune, a byte that no
// text can hold, pieces that are the head or a part of a stop string.
var Pieces = []string{
	"", "", "", // BOS, EOS, EOT
	"a", "b", "c", "ab", "bc", "abc", " ", "\n", "\n\n", "#", "##", "END", "EN", "D",
	"é", "\xc3", "\xa9", // a rune of two bytes, whole and cut
	"€", "\xe2", "\x82", "\xac", "\xe2\x82", "\x82\xac", // of three
	"\xf0\x9f", "\x98\x80", "x\xf0", // of four
	"\xff", "\xff\xff", "", // never text; and a piece that is empty
}

// A Vocab is a list of pieces and the ids that end a text.
type Vocab struct {
	Pieces []string
	EOG    []int32
}

// Words is the vocabulary of Pieces, with EOS and EOT as ends.
func Words() Vocab { return Vocab{Pieces: Pieces, EOG: []int32{EOS, EOT}} }

// Piece returns the bytes of a token.
func (v Vocab) Piece(id int32) []byte { return []byte(v.Pieces[id]) }

// IsEOG reports whether a token ends a text.
func (v Vocab) IsEOG(id int32) bool { return slices.Contains(v.EOG, id) }

// Bytes returns the bytes of tokens, joined.
func (v Vocab) Bytes(tokens []int32) []byte {
	var b []byte
	for _, t := range tokens {
		b = append(b, v.Pieces[t]...)
	}
	return b
}

// Find returns the first id with the given piece, and panics without one.
func (v Vocab) Find(piece string) int32 {
	i := slices.Index(v.Pieces, piece)
	if i < 0 {
		panic("tablemodel: no such piece")
	}
	return int32(i)
}
