package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"
)

// QuantizeOptions are the optional arguments of Quantize.
type QuantizeOptions struct {
	AllowRequantize bool  // take tensors that are quantised already, at a loss
	Pure            bool  // the same type for every matrix, without mixtures
	KeepOutput      bool  // leave output.weight as it is
	PruneLayers     []int // layers to leave out, from 0
	Threads         int   // 0 means one a processor
}

// fileTypes are the names that Quantize takes (enum llama_ftype).
var fileTypes = map[string]C.enum_llama_ftype{
	"F32": C.LLAMA_FTYPE_ALL_F32, "F16": C.LLAMA_FTYPE_MOSTLY_F16, "BF16": C.LLAMA_FTYPE_MOSTLY_BF16,
	"Q8_0": C.LLAMA_FTYPE_MOSTLY_Q8_0, "Q4_0": C.LLAMA_FTYPE_MOSTLY_Q4_0, "Q4_1": C.LLAMA_FTYPE_MOSTLY_Q4_1,
	"Q5_0": C.LLAMA_FTYPE_MOSTLY_Q5_0, "Q5_1": C.LLAMA_FTYPE_MOSTLY_Q5_1,
	"Q2_K": C.LLAMA_FTYPE_MOSTLY_Q2_K, "Q3_K_S": C.LLAMA_FTYPE_MOSTLY_Q3_K_S, "Q3_K_M": C.LLAMA_FTYPE_MOSTLY_Q3_K_M, "Q3_K_L": C.LLAMA_FTYPE_MOSTLY_Q3_K_L,
	"Q4_K_S": C.LLAMA_FTYPE_MOSTLY_Q4_K_S, "Q4_K_M": C.LLAMA_FTYPE_MOSTLY_Q4_K_M, "Q5_K_S": C.LLAMA_FTYPE_MOSTLY_Q5_K_S, "Q5_K_M": C.LLAMA_FTYPE_MOSTLY_Q5_K_M,
	"Q6_K": C.LLAMA_FTYPE_MOSTLY_Q6_K, "IQ4_NL": C.LLAMA_FTYPE_MOSTLY_IQ4_NL, "IQ4_XS": C.LLAMA_FTYPE_MOSTLY_IQ4_XS,
	"IQ3_S": C.LLAMA_FTYPE_MOSTLY_IQ3_S, "IQ3_M": C.LLAMA_FTYPE_MOSTLY_IQ3_M,
	"TQ1_0": C.LLAMA_FTYPE_MOSTLY_TQ1_0, "TQ2_0": C.LLAMA_FTYPE_MOSTLY_TQ2_0, "MXFP4_MOE": C.LLAMA_FTYPE_MOSTLY_MXFP4_MOE,
}

// FileTypes returns the names that Quantize takes, sorted.
func FileTypes() []string {
	var names []string
	for name := range fileTypes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Quantize writes the model at in to out with its matrices in another type,
// such as Q4_0 (llama_model_quantize). out appears only when it is complete. A
// done ctx ends it before the next tensor; the error then wraps
// context.Cause(ctx).
func Quantize(ctx context.Context, in, out, fileType string, o QuantizeOptions) error {
	if err := checkCPU(); err != nil {
		return err
	}
	ftype, ok := fileTypes[strings.ToUpper(fileType)]
	if !ok {
		return fmt.Errorf("llama: quantize to %q: want one of %s", fileType, strings.Join(FileTypes(), ", "))
	}
	files, _, err := checkFiles(in, nil)
	if err != nil {
		return err
	}
	if sameFile(files, out) {
		return fmt.Errorf("llama: quantize %s: the output would overwrite the input", in)
	}
	if o.Threads < 0 {
		return fmt.Errorf("llama: quantize with %d threads: want 1 or more, or 0 for one a processor", o.Threads)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("llama: quantize %s: %w", in, context.Cause(ctx))
	}
	initialise()
	p := C.llama_model_quantize_default_params()
	p.ftype = ftype
	p.nthread = C.int32_t(o.Threads)
	p.allow_requantize = C.bool(o.AllowRequantize)
	p.pure = C.bool(o.Pure)
	p.quantize_output_tensor = C.bool(!o.KeepOutput)
	if len(o.PruneLayers) > 0 {
		layers := make([]C.int32_t, 0, len(o.PruneLayers)+1)
		for _, l := range o.PruneLayers {
			if l < 0 || l > 1<<20 {
				return fmt.Errorf("llama: quantize: layer %d to leave out: want 0 or more", l)
			}
			layers = append(layers, C.int32_t(l))
		}
		list := cArray(append(layers, -1))
		defer C.free(unsafe.Pointer(list))
		p.prune_layers = list
	}

	partial := out + ".partial"
	cin, freeIn := cString(in)
	defer freeIn()
	cout, freeOut := cString(partial)
	defer freeOut()
	flag := (*C.srt_flag)(C.calloc(1, C.sizeof_srt_flag))
	defer C.free(unsafe.Pointer(flag))
	defer watch(ctx, flag)()
	err = withFault("quantize "+in, func(f *C.srt_fault) bool { return C.srt_quantize(cin, cout, &p, flag, f) != 0 })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("llama: quantize %s: %w", in, context.Cause(ctx))
	}
	if err != nil {
		return errors.Join(err, removeIfThere(partial))
	}
	if err := os.Rename(partial, out); err != nil {
		return errors.Join(fmt.Errorf("llama: quantize %s: %w", in, err), removeIfThere(partial))
	}
	return nil
}

func removeIfThere(name string) error {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func sameFile(files []string, out string) bool {
	b, err := os.Stat(out)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(name string) bool {
		a, err := os.Stat(name)
		return err == nil && os.SameFile(a, b)
	})
}
