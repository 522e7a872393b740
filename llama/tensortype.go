package llama

// #include "shim.h"
import "C"

import (
	"fmt"
	"slices"
	"strings"
)

// TensorType is the type of the numbers of a KV cache.
type TensorType int

// The types that a KV cache can have.
const (
	TypeAuto TensorType = iota // f16; in exact mode what the probe confirms
	TypeF16
	TypeBF16
	TypeF32
	TypeQ8_0
	TypeQ5_1
	TypeQ5_0
	TypeQ4_1
	TypeQ4_0
	TypeIQ4_NL
)

var tensorTypes = []struct {
	name   string
	native C.enum_ggml_type
}{
	TypeAuto: {"auto", C.GGML_TYPE_F16}, TypeF16: {"f16", C.GGML_TYPE_F16}, TypeBF16: {"bf16", C.GGML_TYPE_BF16}, TypeF32: {"f32", C.GGML_TYPE_F32},
	TypeQ8_0: {"q8_0", C.GGML_TYPE_Q8_0}, TypeQ5_1: {"q5_1", C.GGML_TYPE_Q5_1}, TypeQ5_0: {"q5_0", C.GGML_TYPE_Q5_0},
	TypeQ4_1: {"q4_1", C.GGML_TYPE_Q4_1}, TypeQ4_0: {"q4_0", C.GGML_TYPE_Q4_0}, TypeIQ4_NL: {"iq4_nl", C.GGML_TYPE_IQ4_NL},
}

// ParseTensorType reads a name as llama.cpp's -ctk takes it: f16, bf16, q8_0, ...
func ParseTensorType(name string) (TensorType, error) {
	var names []string
	for t, known := range tensorTypes {
		if known.name == strings.ToLower(name) {
			return TensorType(t), nil
		}
		names = append(names, known.name)
	}
	return 0, fmt.Errorf("llama: KV cache type %q: want one of %s", name, strings.Join(names, ", "))
}

func (t TensorType) String() string {
	if !t.forCache() {
		return fmt.Sprintf("TensorType(%d)", int(t))
	}
	return tensorTypes[t].name
}

func (t TensorType) forCache() bool { return t >= 0 && int(t) < len(tensorTypes) }

// DraftKeyType returns the type of the keys in a KV cache with which the model
// drafts fastest: 8 bits on a CPU, which reads a cache of some hundred tokens a
// fifth faster, where they fit the blocks of 32; else what TypeAuto is. A draft
// decides no text, so that what it loses costs a little acceptance at most.
func (m *Model) DraftKeyType() TensorType {
	onGPU := slices.ContainsFunc(Devices(), func(d Device) bool { return d.Type == DeviceGPU })
	if size := m.Facts().KeySize; onGPU || size == 0 || size%32 != 0 {
		return TypeAuto
	}
	return TypeQ8_0
}

func (t TensorType) quantised() bool { return t >= TypeQ8_0 }

func (t TensorType) native() C.enum_ggml_type { return tensorTypes[t].native }

// bytes returns the size of a row of n numbers.
func (t TensorType) bytes(n int) uint64 { return uint64(C.ggml_row_size(t.native(), C.int64_t(n))) }
