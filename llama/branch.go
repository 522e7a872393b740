package llama

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"

	"github.com/sortes-llm/sortes/eval"
)

// A branch is one way in which a sequence went on in the last Eval, where there
// were several. llama.cpp knows sequences and no branches: a cell is seen from
// a row if it belongs to the first of the row's sequences and is not behind it.
// So each branch but the first is a sequence of its own for as long as it lasts,
// which has the cells of the sequence that it is a branch of, and a row belongs
// to the sequences of all branches that hold it. That needs one cache for all.
type branch struct {
	seq    int // -1 when it is over
	number int
	native int // the sequence in llama.cpp's memory: seq itself for number 0
	base   int // tokens of the sequence before the Eval
	length int // and of the branch after it
	last   int // the row added last, -1 before the first
}

var _ eval.Brancher = (*Session)(nil)

// checkBranches reports what keeps a session from having branches.
func (o SessionOptions) checkBranches(facts Facts) error {
	if !(o.Branches >= 0 && o.Branches <= math.MaxInt16) {
		return fmt.Errorf("llama: %d branches: want 0 or more", o.Branches)
	}
	switch {
	case o.Branches == 0:
		return nil
	case facts.Recurrent || facts.Hybrid:
		return fmt.Errorf("llama: %d branches: %w", o.Branches, eval.ErrNoRollback)
	case facts.SlidingWindow > 0 && !o.FullSWA:
		return fmt.Errorf("llama: %d branches: with a sliding window only where FullSWA keeps all of it", o.Branches)
	case !o.Unified:
		return fmt.Errorf("llama: %d branches: only with a unified cache", o.Branches)
	case o.Embeddings:
		return fmt.Errorf("llama: %d branches: not with embeddings", o.Branches)
	}
	return nil
}

// Branches implements eval.Brancher.
func (s *Session) Branches() int { s.ptr(); return s.options.Branches }

// plant notes the branches that the rows name. It panics on more than the
// options allow.
func (s *Session) plant(rows []eval.Row) {
	more := 0
	for _, r := range rows {
		if r.First < 0 || r.First > r.Last || r.First == r.Last && r.Last != 0 {
			panic("llama: branches of a row: want 0 <= First < Last, or both 0")
		}
		if r.Last < 2 {
			continue
		}
		s.mustHave(r.Seq)
		for next := s.branchesOf(r.Seq); next < r.Last; next++ {
			b := branch{seq: r.Seq, number: next, native: r.Seq, base: s.lengths[r.Seq], length: s.lengths[r.Seq], last: -1}
			if next > 0 {
				if more == s.options.Branches {
					s.branches = s.branches[:0]
					panic("llama: branches of one Eval: want at most SessionOptions.Branches")
				}
				b.native = s.limits.Sequences + more
				more++
			}
			s.branches = append(s.branches, b)
		}
	}
}

// branchesOf returns how many branches a sequence has, number 0 included, and 0
// where it has no others.
func (s *Session) branchesOf(seq int) int {
	n := 0
	for i := range s.branches {
		if s.branches[i].seq == seq {
			n++
		}
	}
	return n
}

// join adds a row to its branches. It writes their native sequences to ids, and
// returns how many there are and the position of the row.
func (s *Session) join(i int, r eval.Row, ids []C.llama_seq_id) (n, position int) {
	from := -1 // the row before, in the first of the branches
	for k := range s.branches {
		b := &s.branches[k]
		if b.seq != r.Seq || r.Last > 0 && (b.number < r.First || b.number >= r.Last) {
			continue
		}
		if n == 0 {
			from, position = b.last, b.length
		} else if b.last != from {
			s.branches = s.branches[:0]
			panic("llama: branches of a row: they have parted before")
		}
		ids[n] = C.llama_seq_id(b.native)
		b.last, b.length = i, b.length+1
		if b.number == 0 {
			s.after[r.Seq]++
		}
		n++
	}
	if n == 0 { // a sequence without branches
		ids[0] = C.llama_seq_id(r.Seq)
		n, position = 1, s.after[r.Seq]
		s.after[r.Seq]++
	}
	return n, position
}

// fork gives the branches the cells of their sequences.
func (s *Session) fork() error {
	for _, b := range s.branches {
		if b.number > 0 && b.base > 0 {
			if err := s.copyRange(b.native, b.seq, -1, -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// prune drops the branches of the last Eval from the native memory.
func (s *Session) prune() error {
	for _, b := range s.branches {
		if b.number > 0 {
			if _, err := s.remove(b.native, 0); err != nil {
				return err
			}
		}
	}
	s.branches = s.branches[:0]
	return nil
}

// part notes that a sequence is not any more what its branches grew from.
func (s *Session) part(seq int) {
	for i := range s.branches {
		if s.branches[i].seq == seq {
			s.branches[i].seq = -1
		}
	}
}

// Keep implements eval.Brancher.
func (s *Session) Keep(seq, number, n int) error {
	if number == 0 {
		return s.Truncate(seq, n)
	}
	if _, err := s.ready("keep"); err != nil {
		return err
	}
	s.mustHave(seq)
	for _, b := range s.branches {
		if b.seq != seq || b.number != number {
			continue
		}
		if n < 0 || n > b.length {
			panic("llama: keep: want 0 to the length of the branch")
		}
		if err := s.Truncate(seq, min(n, b.base)); err != nil {
			return err
		}
		if n <= b.base {
			return nil
		}
		if err := s.copyRange(seq, b.native, b.base, n); err != nil {
			return err
		}
		s.lengths[seq] = n
		return nil
	}
	panic("llama: keep: the sequence has no such branch in the last Eval")
}
