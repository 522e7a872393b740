package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"unsafe"

	"github.com/sortes-llm/sortes/eval"
)

// A saved state is
//
//	magic, version           8 + 4 bytes
//	model                    32 bytes, Model.fingerprint and the adapters'
//	caches, their number     4 bytes, 1 for a unified one
//	tokens, their number     8 + 4*n bytes
//	native state, its size   8 + size bytes
//	checksum                 32 bytes, SHA-256 of all before
//
// with little-endian numbers. llama.cpp asserts on a state that is cut or
// foreign, so everything is verified before it sees a byte.
const (
	stateMagic   = "sortesST"
	stateVersion = 1
)

// ErrState is wrapped by LoadState for data that is no state, is damaged, or
// belongs to another model.
var ErrState = errors.New("not a usable state")

// SaveState writes what a sequence holds to w, together with its tokens, which
// the session itself does not remember. It panics unless there are Len(seq) of
// them.
func (s *Session) SaveState(w io.Writer, seq int, tokens []int32) error {
	if _, err := s.ready("save state"); err != nil {
		return err
	}
	s.mustHave(seq)
	if len(tokens) != s.lengths[seq] {
		panic("llama: save state: want the Len(seq) tokens that the sequence holds")
	}
	model, err := s.stateFingerprint()
	if err != nil {
		return fmt.Errorf("llama: save state: %w", err)
	}
	if err := s.flush(); err != nil {
		return err
	}
	native := nativeBytes{}
	if len(tokens) > 0 {
		if native, err = s.stateBytes(seq, 0); err != nil {
			return err
		}
		defer C.free(native.p)
	}

	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	var b []byte
	b = append(b, stateMagic...)
	b = binary.LittleEndian.AppendUint32(b, stateVersion)
	b = append(b, model[:]...)
	b = binary.LittleEndian.AppendUint32(b, s.caches())
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tokens)))
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(native.size))
	_, _ = out.Write(b) // a failure comes back from Flush
	_, _ = out.Write(unsafe.Slice((*byte)(native.p), int(native.size)))
	if err := out.Flush(); err != nil {
		return fmt.Errorf("llama: save state: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("llama: save state: %w", err)
	}
	return nil
}

// LoadState makes a sequence hold what SaveState wrote and returns its tokens.
// The session that wrote it must have had the same model and adapters, KV types
// and number of separate caches (one sequence counts as unified); its context
// and the sequence may have been others.
// Data that is cut, damaged or of another model is refused with an error that
// wraps ErrState and leaves the sequence alone; if llama.cpp itself refuses a
// sound state, for want of room say, the sequence is empty afterwards.
func (s *Session) LoadState(r io.Reader, seq int) ([]int32, error) {
	if _, err := s.ready("load state"); err != nil {
		return nil, err
	}
	s.mustHave(seq)
	model, err := s.stateFingerprint()
	if err != nil {
		return nil, fmt.Errorf("llama: load state: %w", err)
	}
	tokens, native, err := readState(r, model, s.caches(), s.limits)
	if err != nil {
		return nil, fmt.Errorf("llama: load state: %w", err)
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	if _, err := s.remove(seq, 0); err != nil {
		return nil, err
	}
	s.lengths[seq] = 0
	s.shared.cut(seq, 0)
	s.part(seq)
	if len(tokens) == 0 {
		return tokens, nil
	}
	b := nativeBytes{p: C.CBytes(native), size: C.size_t(len(native))}
	defer C.free(b.p)
	err = s.setStateBytes(seq, b, 0)
	if err == nil {
		if last, lastErr := s.lastPosition(seq); lastErr != nil || last != len(tokens)-1 {
			err = fmt.Errorf("llama: load state: %w: it ends at position %d and has %d tokens", ErrState, last, len(tokens))
		}
	}
	if err != nil {
		_, _ = s.remove(seq, 0)
		return nil, err
	}
	s.lengths[seq] = len(tokens)
	return tokens, nil
}

// caches is the number of caches, which llama.cpp keeps in a state.
func (s *Session) caches() uint32 {
	if s.options.Unified {
		return 1
	}
	return uint32(s.limits.Sequences)
}

// readState reads and verifies a whole state. It allocates no more than r has.
func readState(r io.Reader, model [sha256.Size]byte, caches uint32, limits eval.Limits) (tokens []int32, native []byte, err error) {
	in := &stateReader{r: bufio.NewReader(r), sum: sha256.New()}
	if magic := in.bytes(uint64(len(stateMagic))); in.err == nil && string(magic) != stateMagic {
		return nil, nil, fmt.Errorf("%w: it does not begin with %q", ErrState, stateMagic)
	}
	if version := in.bytes(4); in.err == nil && binary.LittleEndian.Uint32(version) != stateVersion {
		return nil, nil, fmt.Errorf("%w: version %d, want %d", ErrState, binary.LittleEndian.Uint32(version), stateVersion)
	}
	if id := in.bytes(sha256.Size); in.err == nil && !bytes.Equal(id, model[:]) {
		return nil, nil, fmt.Errorf("%w: another model, or another set of adapters, wrote it", ErrState)
	}
	if b := in.bytes(4); in.err == nil && binary.LittleEndian.Uint32(b) != caches {
		if want := binary.LittleEndian.Uint32(b); want != 1 {
			return nil, nil, fmt.Errorf("%w: it needs separate caches for %d sequences: this session has %d", ErrState, want, caches)
		}
		return nil, nil, fmt.Errorf("%w: it needs a unified cache, or one for a single sequence: this session has %d separate ones", ErrState, caches)
	}
	n := in.number()
	if in.err == nil && n > uint64(limits.Context) {
		return nil, nil, fmt.Errorf("%w: it holds %d tokens, and the context %d", ErrState, n, limits.Context)
	}
	for id := range bytesAsTokens(in.bytes(4 * n)) {
		if int(id) < 0 || int(id) >= limits.Vocab {
			return nil, nil, fmt.Errorf("%w: token %d, want 0 to %d", ErrState, id, limits.Vocab-1)
		}
		tokens = append(tokens, id)
	}
	native = in.bytes(in.number())
	want := in.sum.Sum(nil)
	if got := in.bytes(sha256.Size); in.err == nil && !bytes.Equal(got, want) {
		return nil, nil, fmt.Errorf("%w: the checksum is wrong: it is damaged", ErrState)
	}
	if in.err != nil {
		if errors.Is(in.err, io.EOF) || errors.Is(in.err, io.ErrUnexpectedEOF) {
			return nil, nil, fmt.Errorf("%w: it ends early", ErrState)
		}
		return nil, nil, in.err
	}
	return tokens, native, nil
}

func bytesAsTokens(b []byte) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for ; len(b) >= 4; b = b[4:] {
			if !yield(int32(binary.LittleEndian.Uint32(b))) {
				return
			}
		}
	}
}

// A stateReader reads fields until one is missing; err then stays.
type stateReader struct {
	r   io.Reader
	sum hash.Hash
	err error
}

func (s *stateReader) bytes(n uint64) []byte {
	if s.err != nil {
		return nil
	}
	if n > math.MaxInt64 {
		s.err = io.ErrUnexpectedEOF
		return nil
	}
	var b bytes.Buffer // grows with what is there, whatever n says
	var got int64
	got, s.err = io.CopyN(io.MultiWriter(&b, s.sum), s.r, int64(n))
	if s.err == nil && uint64(got) != n {
		s.err = io.ErrUnexpectedEOF
	}
	return b.Bytes()
}

func (s *stateReader) number() uint64 {
	b := s.bytes(8)
	if s.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// stateFingerprint is the model's, mixed with those of the adapters in use.
func (s *Session) stateFingerprint() ([sha256.Size]byte, error) {
	sum, err := s.model.fingerprint()
	if err != nil {
		return sum, err
	}
	for _, a := range s.adapters {
		file, err := fingerprintFiles([]string{a.Adapter.file})
		if err != nil {
			return sum, err
		}
		h := sha256.New()
		h.Write(sum[:])
		h.Write(file[:])
		_ = binary.Write(h, binary.LittleEndian, a.Scale)
		h.Sum(sum[:0])
	}
	return sum, nil
}

// flush makes pending copies and shifts happen: llama.cpp puts them off to the
// next decode, and a state that is read or written before it would miss them.
func (s *Session) flush() error {
	for seq := range s.lengths {
		if !s.pending {
			return nil
		}
		n := s.lengths[seq]
		if n > 0 && (!s.rollback || s.window > 0) || n >= s.limits.Context {
			continue // what is evaluated here could not be dropped again
		}
		if err := s.Eval(context.Background(), []eval.Row{{Token: 0, Seq: seq}}); err != nil {
			return err
		}
		if err := s.Truncate(seq, n); err != nil {
			return err
		}
	}
	if s.pending {
		return errors.New("llama: a copy or shift is not carried out before the next Eval, and no sequence has room for one here")
	}
	return nil
}
