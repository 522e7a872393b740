package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/sortes-llm/sortes/eval"
)

// Len implements eval.Evaluator.
func (s *Session) Len(seq int) int {
	s.ptr()
	s.mustHave(seq)
	return s.lengths[seq]
}

// Truncate implements eval.Evaluator. It panics if n is not in [0, Len(seq)].
//
// With sliding-window attention and without SessionOptions.FullSWA, the cells
// that have left the window are gone: a suffix can be dropped only while the
// window before n is still there, else the error is ErrNoRollback too.
func (s *Session) Truncate(seq, n int) error {
	if _, err := s.ready("truncate"); err != nil {
		return err
	}
	s.mustHave(seq)
	if n < 0 || n > s.lengths[seq] {
		panic("llama: truncate: want 0 to Len(seq)")
	}
	if n == s.lengths[seq] {
		return nil
	}
	if n > 0 && s.window > 0 {
		first, err := s.firstPosition(seq)
		if err != nil {
			return err
		}
		if first > max(0, n-s.window) {
			return fmt.Errorf("llama: truncate to %d tokens: the sliding window of %d now starts at token %d: %w", n, s.window, first, eval.ErrNoRollback)
		}
	}
	ok, err := s.remove(seq, n)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("llama: truncate to %d tokens: %w", n, eval.ErrNoRollback)
	}
	s.lengths[seq] = n
	s.shared.cut(seq, n)
	s.part(seq)
	return nil
}

// remove drops the tokens of seq from position n on in the native memory.
func (s *Session) remove(seq, n int) (ok bool, err error) {
	err = withFault("truncate", func(f *C.srt_fault) bool {
		ok = bool(C.srt_memory_remove(s.handle, C.int32_t(seq), C.int32_t(n), -1, f))
		return false
	})
	return ok, err
}

// firstPosition is 0 but for sliding windows, whose older cells are gone.
func (s *Session) firstPosition(seq int) (first int, err error) {
	err = withFault("first position", func(f *C.srt_fault) bool {
		first = int(C.srt_memory_first(s.handle, C.int32_t(seq), f))
		return false
	})
	return first, err
}

// lastPosition is llama.cpp's own view of Len(seq)-1, for checks.
func (s *Session) lastPosition(seq int) (last int, err error) {
	err = withFault("last position", func(f *C.srt_fault) bool {
		last = int(C.srt_memory_last(s.handle, C.int32_t(seq), f))
		return false
	})
	return last, err
}

// Copy implements eval.Evaluator. In a unified cache the tokens are shared, in
// separate caches they are copied.
func (s *Session) Copy(dst, src int) error {
	if _, err := s.ready("copy"); err != nil {
		return err
	}
	s.mustHave(dst)
	s.mustHave(src)
	if dst == src {
		return nil
	}
	if _, err := s.remove(dst, 0); err != nil {
		return err
	}
	s.lengths[dst] = 0
	s.shared.cut(dst, 0)
	s.part(dst)
	if s.lengths[src] == 0 {
		return nil
	}
	if err := s.copyRange(dst, src, -1, -1); err != nil {
		return err
	}
	s.lengths[dst] = s.lengths[src]
	s.shared.copied(dst, src, s.lengths[src])
	s.pending = s.pending || s.copiesLater
	return nil
}

func (s *Session) copyRange(dst, src, from, to int) error {
	return withFault("copy", func(f *C.srt_fault) bool {
		C.srt_memory_copy(s.handle, C.int32_t(dst), C.int32_t(src), C.int32_t(from), C.int32_t(to), f)
		return false
	})
}

// Clear empties every sequence.
func (s *Session) Clear() error {
	if _, err := s.ready("clear"); err != nil {
		return err
	}
	clear(s.lengths)
	for seq := range s.lengths {
		s.shared.cut(seq, 0)
		s.part(seq)
	}
	if !s.hasMemory {
		return nil
	}
	return withFault("clear", func(f *C.srt_fault) bool { C.srt_memory_clear(s.handle, f); return false })
}

// ErrShared is wrapped by the error of a Shift that would move another
// sequence's tokens.
var ErrShared = errors.New("another sequence shares the tokens that would move")

// CanShift reports whether Shift works for this model.
func (s *Session) CanShift() bool {
	p, err := s.ready("shift")
	if err != nil || !s.hasMemory || !s.rollback {
		return false
	}
	can := false
	_ = withFault("can shift", func(f *C.srt_fault) bool { can = bool(C.srt_memory_can_shift(p, f)); return false })
	return can
}

// Shift drops the tokens from, from+1, ... to-1 of a sequence and moves those
// behind them down, so that a full cache can go on: the text stays, its older
// part is forgotten (llama.cpp calls it context shift). It panics unless
// 0 <= from <= to <= Len(seq). A cache that cannot is eval.ErrNoRollback; in a
// unified cache, tokens behind to that another sequence has too (Copy) would
// move for both: that is ErrShared.
func (s *Session) Shift(seq, from, to int) error {
	if _, err := s.ready("shift"); err != nil {
		return err
	}
	s.mustHave(seq)
	if from < 0 || from > to || to > s.lengths[seq] {
		panic("llama: shift: want 0 <= from <= to <= Len(seq)")
	}
	if from == to {
		return nil
	}
	if !s.CanShift() {
		return fmt.Errorf("llama: shift: %w or its middle", eval.ErrNoRollback)
	}
	if other := s.shared.behind(seq, to); other >= 0 {
		return fmt.Errorf("llama: shift: %w: sequence %d", ErrShared, other)
	}
	ok := false
	err := withFault("shift", func(f *C.srt_fault) bool {
		ok = bool(C.srt_memory_remove(s.handle, C.int32_t(seq), C.int32_t(from), C.int32_t(to), f))
		return false
	})
	if err == nil && !ok {
		err = fmt.Errorf("llama: shift: %w or its middle", eval.ErrNoRollback)
	}
	if err != nil {
		return err
	}
	if err := s.addPositions(seq, to, -1, from-to); err != nil {
		s.broken = true // half shifted
		return err
	}
	s.lengths[seq] -= to - from
	s.shared.cut(seq, from)
	s.part(seq)
	s.pending = true
	return nil
}

func (s *Session) addPositions(seq, from, to, delta int) error {
	return withFault("shift", func(f *C.srt_fault) bool {
		C.srt_memory_shift(s.handle, C.int32_t(seq), C.int32_t(from), C.int32_t(to), C.int32_t(delta), f)
		return false
	})
}

// snapshots hold the part of a sequence's memory that a decode overwrites and
// no truncation brings back: the state of recurrent models, and the cells of a
// sliding window that several microbatches push out.
type snapshots struct {
	data map[int]nativeBytes
}

type nativeBytes struct {
	p    unsafe.Pointer
	size C.size_t
}

// snapshot saves what undo would miss. It costs nothing for plain caches.
func (s *Session) snapshot(ctx context.Context, rows []eval.Row) (*snapshots, error) {
	if !s.hasMemory || !s.needsSnapshot(ctx, len(rows)) {
		return nil, nil
	}
	saved := &snapshots{data: map[int]nativeBytes{}}
	for _, r := range rows {
		if _, ok := saved.data[r.Seq]; ok || s.lengths[r.Seq] == 0 {
			continue
		}
		b, err := s.stateBytes(r.Seq, C.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
		if err != nil {
			saved.free()
			return nil, err
		}
		saved.data[r.Seq] = b
	}
	return saved, nil
}

func (s *Session) needsSnapshot(ctx context.Context, rows int) bool {
	if ctx.Done() == nil {
		return false // nothing but a native failure interrupts it: restore then empties the sequence
	}
	return !s.rollback || s.window > 0 && rows > int(C.llama_n_ubatch(s.handle))
}

func (n *snapshots) restore(s *Session, seq int) error {
	if n == nil {
		return nil
	}
	b, ok := n.data[seq]
	if !ok {
		return nil
	}
	return s.setStateBytes(seq, b, C.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
}

func (n *snapshots) free() {
	if n == nil {
		return
	}
	for _, b := range n.data {
		C.free(b.p)
	}
}

// stateBytes copies the native state of a sequence into memory of C, which the
// caller frees.
func (s *Session) stateBytes(seq int, flags C.uint32_t) (b nativeBytes, err error) {
	err = withFault("save state", func(f *C.srt_fault) bool {
		b.size = C.srt_state_size(s.handle, C.int32_t(seq), flags, f)
		return b.size == 0
	})
	if err != nil {
		return b, err
	}
	if b.p = C.malloc(b.size); b.p == nil {
		return b, fmt.Errorf("llama: save state: %d bytes: out of memory", uint64(b.size))
	}
	err = withFault("save state", func(f *C.srt_fault) bool {
		return C.srt_state_get(s.handle, (*C.uint8_t)(b.p), b.size, C.int32_t(seq), flags, f) != b.size
	})
	if err != nil {
		C.free(b.p)
	}
	return b, err
}

func (s *Session) setStateBytes(seq int, b nativeBytes, flags C.uint32_t) error {
	return withFault("load state", func(f *C.srt_fault) bool {
		return C.srt_state_set(s.handle, (*C.uint8_t)(b.p), b.size, C.int32_t(seq), flags, f) != b.size
	})
}
