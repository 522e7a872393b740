//go:build cuda && !system

package llama

// The archive of ./build.sh --cuda, which also links the CUDA libraries it
// was built against into its lib directory.

/*
#cgo CPPFLAGS: -I${SRCDIR}/../third_party/native/cuda/include
#cgo LDFLAGS: ${SRCDIR}/../third_party/native/cuda/lib/libllama.a
#cgo LDFLAGS: -L${SRCDIR}/../third_party/native/cuda/lib -Wl,-rpath,${SRCDIR}/../third_party/native/cuda/lib
#cgo LDFLAGS: -lcublas -lcudart -lcuda -lstdc++ -lm -lpthread -ldl -lrt
*/
import "C"
