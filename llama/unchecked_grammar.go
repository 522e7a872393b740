package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A nativeGrammar is llama.cpp's own grammar sampler. Texts are constrained by
// package grammar, which takes bounded time and memory whatever the grammar;
// this one exists for the tests, as another implementation of the same. It
// belongs to one goroutine and must be closed.
type nativeGrammar struct {
	vocab  *Vocab
	handle *C.struct_llama_sampler
}

// errGrammarOver is what a native grammar answers after a failure, which leaves
// it in no state to go on from.
var errGrammarOver = errors.New("llama: this grammar is closed or has failed")

func newNativeGrammar(v *Vocab, gbnf, root, lazyPattern string) (*nativeGrammar, error) {
	cgbnf, freeGBNF := cString(gbnf)
	defer freeGBNF()
	croot, freeRoot := cString(root)
	defer freeRoot()
	g := &nativeGrammar{vocab: v}
	err := withFault("grammar", func(f *C.srt_fault) bool {
		if lazyPattern == "" {
			g.handle = C.srt_grammar_new(v.ptr(), cgbnf, croot, f)
		} else {
			pattern, free := cString(lazyPattern)
			defer free()
			g.handle = C.srt_grammar_new_lazy(v.ptr(), cgbnf, croot, pattern, f)
		}
		return g.handle == nil
	})
	if err != nil {
		return nil, err
	}
	live.Add(1)
	return g, nil
}

func (g *nativeGrammar) close() {
	if g.handle == nil {
		return
	}
	_ = withFault("free grammar", func(f *C.srt_fault) bool { C.srt_grammar_free(g.handle, f); return false })
	g.handle = nil
	live.Add(-1)
}

func (g *nativeGrammar) clone() (*nativeGrammar, error) {
	if g.handle == nil {
		return nil, errGrammarOver
	}
	n := &nativeGrammar{vocab: g.vocab}
	err := withFault("clone grammar", func(f *C.srt_fault) bool { n.handle = C.srt_grammar_clone(g.handle, f); return n.handle == nil })
	if err == nil {
		live.Add(1)
	}
	return n, err
}

// allow appends to dst those of the tokens that may come next.
func (g *nativeGrammar) allow(dst, tokens []int32) ([]int32, error) {
	for _, id := range tokens {
		g.vocab.mustHave(id)
	}
	return g.allowRaw(dst, tokens)
}

// accept goes on by one token, which is checked first: one that is not allowed
// is an error and changes nothing.
func (g *nativeGrammar) accept(token int32) error {
	may, err := g.allow(nil, []int32{token})
	if err != nil {
		return err
	}
	if len(may) == 0 {
		return fmt.Errorf("llama: token %d: the grammar does not allow it", token)
	}
	return g.acceptRaw(token)
}

// allowRaw is allow without checks.
func (g *nativeGrammar) allowRaw(dst, tokens []int32) ([]int32, error) {
	if g.handle == nil {
		return dst, errGrammarOver
	}
	if len(tokens) == 0 {
		return dst, nil
	}
	allowed := make([]bool, len(tokens))
	err := withFault("check tokens against the grammar", func(f *C.srt_fault) bool {
		C.srt_grammar_check(g.handle, (*C.llama_token)(unsafe.Pointer(&tokens[0])), (*C.bool)(unsafe.Pointer(&allowed[0])), C.int32_t(len(tokens)), f)
		return false
	})
	if err != nil {
		g.close()
		return dst, err
	}
	for i, id := range tokens {
		if allowed[i] {
			dst = append(dst, id)
		}
	}
	return dst, nil
}

// acceptRaw is accept without checks. What fails here is over: llama.cpp has
// thrown its state away before it said so.
func (g *nativeGrammar) acceptRaw(token int32) error {
	if g.handle == nil {
		return errGrammarOver
	}
	err := withFault("accept a token", func(f *C.srt_fault) bool { C.srt_grammar_accept(g.handle, C.llama_token(token), f); return false })
	if err != nil {
		g.close()
	}
	return err
}
