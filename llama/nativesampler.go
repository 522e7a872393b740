package llama

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"
)

// A NativeStep is a sampler of llama.cpp in a [NativeSampler], by name, with
// the arguments of its llama_sampler_init function but the size of the
// vocabulary:
//
//	greedy
//	dist         seed
//	top_k        k
//	top_p        p, min_keep
//	min_p        p, min_keep
//	typical      p, min_keep
//	temp         t
//	temp_ext     t, range, exponent
//	top_n_sigma  n
//	xtc          probability, threshold, min_keep, seed
//	penalties    last_n, repeat, frequency, presence
//	dry          multiplier, base, allowed_length, last_n; without breakers
//	mirostat     seed, tau, eta, m
//	mirostat_v2  seed, tau, eta
//	adaptive_p   target, decay, seed
//	logit_bias   token, bias, and so on in pairs
type NativeStep struct {
	Name string
	Args []float64
}

// Native returns a NativeStep.
func Native(name string, args ...float64) NativeStep { return NativeStep{name, args} }

// nativeArgs has the types of the arguments of each sampler: f is a float32, i
// an int32, u a uint32.
var nativeArgs = map[string]string{
	"greedy": "", "dist": "u", "top_k": "i", "top_p": "fu", "min_p": "fu", "typical": "fu", "temp": "f", "temp_ext": "fff",
	"top_n_sigma": "f", "xtc": "ffuu", "penalties": "ifff", "dry": "ffii", "mirostat": "uffi", "mirostat_v2": "uff",
	"adaptive_p": "ffu",
}

// check returns an error if llama.cpp has no such sampler or its C function
// could not take the arguments as they are.
func (s NativeStep) check(vocabulary int) error {
	types, known := nativeArgs[s.Name]
	if s.Name == "logit_bias" {
		types, known = strings.Repeat("if", (len(s.Args)+1)/2), true
	}
	if !known {
		return fmt.Errorf("llama: no sampler %q", s.Name)
	}
	if len(s.Args) != len(types) {
		return fmt.Errorf("llama: sampler %s with %d arguments, want %d", s.Name, len(s.Args), len(types))
	}
	for i, v := range s.Args {
		low, high := float64(math.MinInt32), float64(math.MaxInt32)
		switch {
		case s.Name == "logit_bias" && types[i] == 'i':
			low, high = 0, float64(vocabulary-1)
		case types[i] == 'u':
			low, high = 0, math.MaxUint32
		case types[i] == 'f':
			continue
		}
		if !(v >= low && v <= high && v == math.Trunc(v)) {
			return fmt.Errorf("llama: argument %d of sampler %s is %v, want a whole number from %.0f to %.0f", i+1, s.Name, v, low, high)
		}
	}
	return nil
}

// A NativeSampler is llama.cpp's own sampler chain. It exists so that tests and
// benchmarks can compare package sampler with it: nothing generates text with
// it. One goroutine at a time may use it, and it must be closed.
type NativeSampler struct {
	handle     *C.srt_sampler
	vocabulary int
}

// NewNativeSampler returns a chain of samplers for rows of so many logits.
func NewNativeSampler(vocabulary int, steps ...NativeStep) (*NativeSampler, error) {
	if vocabulary < 1 || vocabulary > math.MaxInt32 {
		return nil, fmt.Errorf("llama: a vocabulary of %d: want 1 to %d", vocabulary, math.MaxInt32)
	}
	for _, step := range steps {
		if err := step.check(vocabulary); err != nil {
			return nil, err
		}
	}
	initialise()
	s := &NativeSampler{handle: C.srt_sampler_new(C.int32_t(vocabulary)), vocabulary: vocabulary}
	if s.handle == nil {
		return nil, fmt.Errorf("llama: no memory for a sampler of %d tokens", vocabulary)
	}
	live.Add(1)
	for _, step := range steps {
		name, free := cString(step.Name)
		args := append(slices.Clone(step.Args), 0) // so that there is a first
		added := C.srt_sampler_add(s.handle, name, C.int32_t(vocabulary), (*C.double)(&args[0]), C.size_t(len(step.Args)))
		free()
		if err := s.fault("sampler "+step.Name, !bool(added)); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Vocabulary returns how many logits a row has.
func (s *NativeSampler) Vocabulary() int { return s.vocabulary }

func (s *NativeSampler) ptr() *C.srt_sampler {
	if s.handle == nil {
		panic("llama: native sampler used after Close")
	}
	return s.handle
}

// fault is the error of the last call, if it failed.
func (s *NativeSampler) fault(op string, failed bool) error {
	return faulted(op, &s.ptr().fault, 0, failed)
}

// Apply fills the candidates with a row and applies the chain to them, as
// llama_sampler_sample does. It panics if the row has not as many logits as the
// vocabulary has tokens.
func (s *NativeSampler) Apply(logits []float32) error {
	if len(logits) != s.vocabulary {
		panic("llama: a row of another length than the vocabulary")
	}
	C.srt_sampler_apply(s.ptr(), (*C.float)(&logits[0]), C.int32_t(len(logits)))
	return s.fault("apply samplers", false)
}

// Sample is Apply, and returns the token that the chain's last sampler has
// selected, which the chain has then accepted. Without dist, greedy or another
// sampler that selects it is an error.
func (s *NativeSampler) Sample(logits []float32) (int32, error) {
	if err := s.Apply(logits); err != nil {
		return 0, err
	}
	c := &s.handle.candidates
	if c.selected < 0 || c.selected >= C.int64_t(c.size) {
		return 0, fmt.Errorf("llama: no sampler of the chain selected a token")
	}
	token := int32(unsafe.Slice(c.data, c.size)[c.selected].id)
	return token, s.Accept(token)
}

// A NativeCandidate is a token as a chain has left it. Prob is what the last
// sampler that needed probabilities wrote, 0 if none did.
type NativeCandidate struct {
	ID          int32
	Logit, Prob float32
}

// Candidates appends what the last Apply left to dst, in llama.cpp's order.
// Tokens that a sampler masked are among them, with a logit of -Inf.
func (s *NativeSampler) Candidates(dst []NativeCandidate) []NativeCandidate {
	c := &s.ptr().candidates
	for _, x := range unsafe.Slice(c.data, c.size) {
		dst = append(dst, NativeCandidate{int32(x.id), float32(x.logit), float32(x.p)})
	}
	return dst
}

// Accept tells the samplers that have a state which token follows. It panics
// if the vocabulary does not have it.
func (s *NativeSampler) Accept(token int32) error {
	if token < 0 || int(token) >= s.vocabulary {
		panic("llama: token outside the vocabulary")
	}
	C.srt_sampler_accept(s.ptr(), C.llama_token(token))
	return s.fault("accept", false)
}

// Reset makes the chain forget the tokens it has accepted.
func (s *NativeSampler) Reset() error {
	C.srt_sampler_reset(s.ptr())
	return s.fault("reset", false)
}

// Close frees the chain. It may be called twice.
func (s *NativeSampler) Close() {
	if s.handle != nil {
		C.srt_sampler_free(s.handle)
		s.handle = nil
		live.Add(-1)
	}
}
