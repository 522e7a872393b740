// Package eval is the contract between the generation loop and whatever
// evaluates a model: package llama implements it over llama.cpp, the tests
// over a table. It holds only what both sides must share by type.
package eval

import (
	"context"
	"errors"
	"time"
)

// A Row is one token to evaluate at the next free position of a sequence.
type Row struct {
	Token  int32 // in [0, Evaluator.Limits().Vocab)
	Seq    int   // in [0, Evaluator.Limits().Sequences)
	Output bool  // whether the logits that follow this token are wanted

	// First and Last say which branches of the sequence hold the row: those from
	// First to below Last, of all branches where both are 0. See [Brancher].
	First, Last int
}

// Limits are the fixed sizes of an Evaluator.
type Limits struct {
	Vocab     int // entries in a row of logits
	Sequences int // sequences held at once
	Context   int // tokens that one sequence can hold
	Batch     int // rows that one Eval takes at most
	Outputs   int // of them, rows with Output set at most
}

// Noise says how far a row's logits depend on the rows evaluated beside it.
// The zero value means not at all: the logits are equal bit for bit.
type Noise struct {
	MaxAbs float64       // largest absolute difference of one logit seen
	Rows   int           // rows compared
	Depth  int           // largest depth compared, tokens in the sequence before the row
	Took   time.Duration // what the comparison cost
}

// Exact reports whether no difference was seen.
func (n Noise) Exact() bool { return n.MaxAbs == 0 }

// An Evaluator evaluates tokens and remembers, per sequence, those evaluated
// so far (its KV cache). One goroutine at a time may use it.
//
// A sequence outside [0, Sequences), a row outside the batch, a token outside
// the vocabulary are the caller's bugs: an implementation may panic on the
// first two and returns an error for the third, which may come from user input.
type Evaluator interface {
	Limits() Limits

	// Eval appends every row to its sequence, in order, and computes the
	// logits of those with Output set. It takes 1 to Limits().Batch rows.
	// On any error every sequence is as it was before the call, and no
	// logits are available. A done ctx interrupts it; the error then wraps
	// context.Cause(ctx). No room for the rows is ErrNoSlot.
	Eval(ctx context.Context, rows []Row) error

	// Logits returns the logits after row i of the last Eval, which must
	// have had Output set: Limits().Vocab unnormalised log-probabilities,
	// indexed by token. The slice is a view that is valid until the next
	// Eval or Close; the caller may write to it.
	Logits(i int) []float32

	// Len returns the number of tokens that a sequence holds.
	Len(seq int) int

	// Truncate drops all but the first n tokens of a sequence. It fails with
	// ErrNoRollback where the memory cannot drop a suffix; dropping
	// everything (n = 0) and nothing (n = Len) always succeeds.
	Truncate(seq, n int) error

	// Copy makes dst hold what src holds. What dst held is dropped.
	Copy(dst, src int) error

	// Probe measures Noise with a few evaluations of its own, which leave
	// the sequences alone.
	Probe(ctx context.Context) (Noise, error)
}

// A Brancher is an Evaluator whose sequences can go on in several ways within
// an Eval: a tree of tokens. The ways are branches, numbered from 0. Each begins
// with what the sequence held before the Eval and goes on with the rows of it
// that name the branch, in order. Branch 0 is the sequence itself; the others
// last until the next Eval, or until the sequence is changed otherwise.
//
// Branches that have parted do not meet again: a row of several branches has
// the same rows before it in each. An implementation may panic where that is
// not so, and on more branches than there may be.
type Brancher interface {
	Evaluator

	// Branches returns how many branches one Eval may have at most besides
	// those with number 0, of all sequences together; 0 if none.
	Branches() int

	// Keep makes a sequence hold the first n tokens of one of its branches in
	// the last Eval. It panics where there is no such branch, or n is more than
	// it holds. Otherwise it is like Truncate, which keeps branch 0.
	Keep(seq, branch, n int) error
}

// Errors that the loop tells apart. Implementations wrap them.
var (
	// ErrNoSlot: the cache has no room for the rows.
	ErrNoSlot = errors.New("no room in the KV cache")
	// ErrNoRollback: this memory cannot drop the end of a sequence
	// (recurrent and hybrid models).
	ErrNoRollback = errors.New("the memory of this model cannot drop the end of a sequence")
	// ErrToken: a token id outside the vocabulary.
	ErrToken = errors.New("token outside the vocabulary")
)
