//go:build vulkan && !cuda && !system

package llama

// The archive of ./build.sh --vulkan.

/*
#cgo CPPFLAGS: -I${SRCDIR}/../third_party/native/vulkan/include
#cgo LDFLAGS: ${SRCDIR}/../third_party/native/vulkan/lib/libllama.a
#cgo LDFLAGS: -lvulkan -lstdc++ -lm -lpthread -ldl
*/
import "C"
