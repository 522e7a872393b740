package llama

// #cgo CXXFLAGS: -std=c++17 -O2
// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// An Error is a failure inside llama.cpp.
type Error struct {
	Op   string // what was attempted: "load model", "decode"
	Code int    // what the native function returned, 0 where it returns none
	Log  string // the warnings and errors that llama.cpp logged meanwhile: its way of saying why
	Err  error  // the assertion, the exception or the condition behind it, or nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("llama: ")
	b.WriteString(e.Op)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Log != "" {
		b.WriteString(": ")
		b.WriteString(strings.ReplaceAll(strings.TrimSpace(e.Log), "\n", "; "))
	}
	if e.Code != 0 {
		fmt.Fprintf(&b, " (code %d)", e.Code)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// An Assertion is a failed assertion of ggml or llama.cpp, which would have
// ended the process, with its place and its condition.
type Assertion string

func (a Assertion) Error() string { return string(a) }

// ErrBroken is wrapped by the errors of an object in which an assertion failed
// midway: it refuses everything but Close, for its memory is in doubt.
var ErrBroken = fmt.Errorf("an earlier failure inside llama.cpp left this in doubt: close it")

// faulted makes an error of what a fenced call left in f, or nil if nothing
// happened. failed says that the native function itself reported a failure.
func faulted(op string, f *C.srt_fault, code int, failed bool) error {
	if f.kind == C.SRT_OK && !failed {
		return nil
	}
	e := &Error{Op: op, Code: code, Log: C.GoString(&f.log[0])}
	switch message := C.GoString(&f.message[0]); f.kind {
	case C.SRT_ABORTED:
		e.Err, e.Code = Assertion(message), 0
	case C.SRT_EXCEPTION:
		e.Err, e.Code = fmt.Errorf("%s", message), 0
	}
	return e
}

// withFault runs one fenced call that has no fault of its own at hand.
func withFault(op string, call func(f *C.srt_fault) (failed bool)) error {
	f := (*C.srt_fault)(C.calloc(1, C.sizeof_srt_fault))
	defer C.free(unsafe.Pointer(f))
	failed := call(f)
	return faulted(op, f, 0, failed)
}

// live counts the open native handles; the tests end with none.
var live atomic.Int64

// initialise installs the handlers and the backends on first use.
var initialise = sync.OnceFunc(func() { C.srt_init() })

// cString is C.CString with the free that belongs to it.
func cString(s string) (p *C.char, free func()) {
	p = C.CString(s)
	return p, func() { C.free(unsafe.Pointer(p)) }
}
