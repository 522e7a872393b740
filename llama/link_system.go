//go:build system

package llama

// An installed library, found through its llama.pc: see build.sh --prefix.

// #cgo pkg-config: llama
import "C"
