//go:build !cuda && !vulkan && !system

package llama

// The archive of plain ./build.sh. On macOS it holds the Metal backend too.

/*
#cgo CPPFLAGS: -I${SRCDIR}/../third_party/native/cpu/include
#cgo LDFLAGS: ${SRCDIR}/../third_party/native/cpu/lib/libllama.a
#cgo linux LDFLAGS: -lstdc++ -lm -lpthread -ldl
#cgo darwin LDFLAGS: -lc++ -framework Accelerate -framework Foundation -framework Metal -framework MetalKit
*/
import "C"
