// Package llama binds llama.cpp: it loads GGUF models, evaluates tokens on CPU
// or GPU and keeps the KV cache. It decides nothing about the text; package
// generate does, over the small interface of package eval, which Session
// implements.
//
// A Model is loaded once and may be shared by any number of goroutines, as may
// its Vocab. A Session belongs to one goroutine at a time. A Pool of compute
// threads is shared by sessions that do not compute at the same moment. All of
// them, and Adapters, hold native memory and must be closed: sessions before
// their model and pool. Use after Close panics; the garbage collector frees
// nothing.
//
// A context.Context interrupts loading, evaluating, quantizing and the probe of
// exact mode; a session is then as it was before the call.
//
// Whatever llama.cpp answers with an abort or a C++ exception is checked
// before the call and fenced behind it, and comes back as an *Error with
// llama.cpp's own message. An assertion on one of ggml's own threads is the
// exception: it ends the process.
//
//	model, err := llama.Open(ctx, "model.gguf", llama.ModelOptions{})
//	...
//	defer model.Close()
//	session, err := model.NewSession(llama.SessionOptions{Context: 2048})
//	...
//	defer session.Close()
//	tokens, err := model.Vocab().Tokenize("Hello", llama.TokenizeOptions{AddSpecial: true})
//	...
//	rows := make([]eval.Row, len(tokens))
//	for i, id := range tokens {
//		rows[i] = eval.Row{Token: id, Output: i == len(tokens)-1}
//	}
//	err = session.Eval(ctx, rows)
//	logits := session.Logits(len(rows) - 1)
//
// The package needs the archive that build.sh makes, or an installed llama.cpp
// with the build tag system. It is not a wrapper of every native function, and
// not stable beyond the pinned release of llama.cpp.
package llama
