package speculative

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrIndexFile: what LoadIndex was given is not a saved index, or is damaged,
// or belongs to another vocabulary. It is wrapped with what is wrong.
var ErrIndexFile = errors.New("not a usable n-gram index")

// A saved index is a header, little-endian, and the tokens as int32, -1 between
// two texts. The tables are made anew when it is loaded, so that a file written
// with other options serves and nothing in it can lead astray.
const (
	indexMagic   = "sortesNG"
	indexVersion = 1
	indexHeader  = 28 // magic, version, vocabulary, tokens, checksum of the tokens, checksum of the above
	indexPiece   = 1024
)

// Save writes the tokens that the index remembers. It is an error if one of them
// lies outside the vocabulary that IndexOptions.Vocab says.
func (x *Index) Save(w io.Writer) error {
	largest := separator
	x.each(func(t int32) { largest = max(largest, t) })
	if x.options.Vocab > 0 && int(largest) >= x.options.Vocab {
		return fmt.Errorf("speculative: save index: it holds token %d: IndexOptions.Vocab is %d, and must be above all tokens, or 0 if not known", largest, x.options.Vocab)
	}
	sum := crc32.NewIEEE()
	x.pieces(sum)
	h := make([]byte, 0, indexHeader)
	h = append(h, indexMagic...)
	h = binary.LittleEndian.AppendUint32(h, indexVersion)
	h = binary.LittleEndian.AppendUint32(h, uint32(x.options.Vocab))
	h = binary.LittleEndian.AppendUint32(h, uint32(x.held))
	h = binary.LittleEndian.AppendUint32(h, sum.Sum32())
	h = binary.LittleEndian.AppendUint32(h, crc32.ChecksumIEEE(h))
	if _, err := w.Write(h); err != nil {
		return fmt.Errorf("speculative: save index: %w", err)
	}
	if err := x.pieces(w); err != nil {
		return fmt.Errorf("speculative: save index: %w", err)
	}
	return nil
}

// pieces writes the tokens.
func (x *Index) pieces(w io.Writer) error {
	var err error
	buffer := make([]byte, 0, 4*indexPiece)
	flush := func() {
		if err == nil {
			_, err = w.Write(buffer)
		}
		buffer = buffer[:0]
	}
	x.each(func(t int32) {
		if buffer = binary.LittleEndian.AppendUint32(buffer, uint32(t)); len(buffer) == cap(buffer) {
			flush()
		}
	})
	flush()
	return err
}

// LoadIndex reads a saved index. Of more tokens than o.Window the last ones are
// kept. With o.Vocab set the file must be for a vocabulary of that size. A file
// that cannot be used is ErrIndexFile; memory is taken as tokens arrive, not by
// what the header promises.
func LoadIndex(r io.Reader, o IndexOptions) (*Index, error) {
	h := make([]byte, indexHeader)
	if _, err := io.ReadFull(r, h); err != nil {
		return nil, fmt.Errorf("speculative: %w: the header is incomplete: %w", ErrIndexFile, err)
	}
	field := func(i int) uint32 { return binary.LittleEndian.Uint32(h[len(indexMagic)+4*i:]) }
	version, vocab, count, sum := field(0), field(1), field(2), field(3)
	switch {
	case !bytes.HasPrefix(h, []byte(indexMagic)):
		return nil, fmt.Errorf("speculative: %w: it does not begin with %q", ErrIndexFile, indexMagic)
	case field(4) != crc32.ChecksumIEEE(h[:indexHeader-4]):
		return nil, fmt.Errorf("speculative: %w: the checksum of the header is wrong", ErrIndexFile)
	case version != indexVersion:
		return nil, fmt.Errorf("speculative: %w: it has version %d: this program reads %d", ErrIndexFile, version, indexVersion)
	case count > maxWindow:
		return nil, fmt.Errorf("speculative: %w: %d tokens: it must be at most %d", ErrIndexFile, count, maxWindow)
	case vocab > 1<<31-1:
		return nil, fmt.Errorf("speculative: %w: a vocabulary of %d: it must be below 2^31", ErrIndexFile, vocab)
	case o.Vocab > 0 && int(vocab) != o.Vocab:
		return nil, fmt.Errorf("speculative: %w: it is for a vocabulary of %d, not of %d", ErrIndexFile, vocab, o.Vocab)
	}
	o.Vocab = int(vocab)
	x, err := NewIndex(o)
	if err != nil {
		return nil, err
	}
	got := crc32.NewIEEE()
	buffer := make([]byte, 4*indexPiece)
	for left := int(count); left > 0; {
		piece := buffer[:4*min(left, indexPiece)]
		if _, err := io.ReadFull(r, piece); err != nil {
			return nil, fmt.Errorf("speculative: %w: it ends %d tokens early: %w", ErrIndexFile, left, err)
		}
		got.Write(piece)
		for ; len(piece) > 0; piece = piece[4:] {
			t := int32(binary.LittleEndian.Uint32(piece))
			switch {
			case t == separator:
				x.EndText()
			case t < 0 || vocab > 0 && uint32(t) >= vocab:
				return nil, fmt.Errorf("speculative: %w: token %d outside the vocabulary of %d", ErrIndexFile, t, vocab)
			default:
				x.Add(t)
			}
			left--
		}
	}
	if got.Sum32() != sum {
		return nil, fmt.Errorf("speculative: %w: the checksum of the tokens is wrong", ErrIndexFile)
	}
	return x, nil
}
