package speculative

import (
	"bytes"
	"fmt"
)

// A Vocab says what the tokens of a model are.
type Vocab interface {
	// Size returns the number of tokens. Ids are 0 to Size()-1.
	Size() int
	// SpecialPiece returns the bytes of a token, of control tokens their names.
	SpecialPiece(id int32) []byte
}

// maxPadding is by how many tokens the sizes of vocabularies may differ:
// llama.cpp's bound, for models that pad theirs to a round number.
const maxPadding = 128

// CheckVocab returns an error, which names the first difference, unless two
// models have the same tokens by the same ids. One of them may have up to 128
// more at the end. These are padding: [Model] never proposes them.
func CheckVocab(target, draft Vocab) error {
	n, m := target.Size(), draft.Size()
	for id := range int32(min(n, m)) {
		if t, d := target.SpecialPiece(id), draft.SpecialPiece(id); !bytes.Equal(t, d) {
			return fmt.Errorf("speculative: another vocabulary: token %d is %q, in the target %q", id, d, t)
		}
	}
	if max(n, m)-min(n, m) > maxPadding {
		return fmt.Errorf("speculative: another vocabulary: it has %d tokens, the target %d; they may differ by %d", m, n, maxPadding)
	}
	return nil
}
