package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import "unsafe"

// What stands here exists for the tests of the fence: native calls without the
// checks that the exported functions make first. Nothing else may use it.

// A rawBatch is a native batch as it is given, true or not.
type rawBatch struct {
	tokens    []int32 // nil for a null pointer
	positions []int32
	sequences []int32
}

// decodeRaw decodes a batch of its own and marks nothing broken.
func (s *Session) decodeRaw(b rawBatch) error {
	n := len(b.positions)
	e := C.srt_eval_new(C.int32_t(max(1, n)), 1)
	defer C.srt_eval_free(e)
	ids := unsafe.Slice(e.ids, n)
	for i := range n {
		ids[i] = C.llama_seq_id(b.sequences[i])
	}
	copy(unsafe.Slice((*int32)(unsafe.Pointer(e.batch.pos)), n), b.positions)
	tokens := e.batch.token
	copy(unsafe.Slice((*int32)(unsafe.Pointer(tokens)), n), b.tokens)
	if b.tokens == nil {
		e.batch.token = nil
	}
	s.pool.mu.Lock()
	code := int(C.srt_decode(s.handle, e, C.int32_t(n)))
	s.pool.mu.Unlock()
	e.batch.token = tokens
	return faulted("decode", &e.fault, code, code != 0)
}

// setCausal says whether a row may not look at later ones; where it may, all
// rows of a batch must fit one microbatch.
func (s *Session) setCausal(causal bool) { C.llama_set_causal_attn(s.handle, C.bool(causal)) }

// rawLogits reports whether llama.cpp has logits for row i.
func (s *Session) rawLogits(i int) (has bool, err error) {
	err = withFault("logits", func(f *C.srt_fault) bool {
		has = C.srt_logits_ith(s.handle, C.int32_t(i), f) != nil
		return !has
	})
	return has, err
}

func (s *Session) setStateRaw(seq int, data []byte) error {
	b := nativeBytes{p: C.CBytes(data), size: C.size_t(len(data))}
	defer C.free(b.p)
	return s.setStateBytes(seq, b, 0)
}

// loadRaw loads and frees a model whose file nobody looked at.
func loadRaw(path string) error {
	initialise()
	p, free := cString(path)
	defer free()
	paths := cArray([]*C.char{p})
	defer C.free(unsafe.Pointer(paths))
	flag := (*C.srt_flag)(C.calloc(1, C.sizeof_srt_flag))
	defer C.free(unsafe.Pointer(flag))
	return withFault("load model", func(f *C.srt_fault) bool {
		m := C.srt_model_load(paths, 1, C.llama_model_default_params(), flag, f)
		if m == nil {
			return true
		}
		var ignored C.srt_fault
		C.srt_model_free(m, &ignored)
		return false
	})
}

// quantizeRaw is Quantize to Q4_0 of a file that nobody looked at.
func quantizeRaw(in, out string) error {
	initialise()
	p := C.llama_model_quantize_default_params()
	p.ftype = C.LLAMA_FTYPE_MOSTLY_Q4_0
	cin, freeIn := cString(in)
	defer freeIn()
	cout, freeOut := cString(out)
	defer freeOut()
	return withFault("quantize", func(f *C.srt_fault) bool { return C.srt_quantize(cin, cout, &p, nil, f) != 0 })
}

// failRaw fails inside a fence in the way that kind says: 1 an assertion, 2 an
// exception.
func failRaw(kind int) error {
	initialise()
	return withFault("fail", func(f *C.srt_fault) bool { C.srt_fail(C.int32_t(kind), f); return false })
}
