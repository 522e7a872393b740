package llama

// #include "shim.h"
import "C"

import (
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Version tells what llama.cpp this program was compiled against and is linked
// to.
type Version struct {
	LlamaCPP string   // as the linked library says
	GGML     string   // as the linked library says
	Commit   string   // of ggml, as the linked library says
	Pin      string   // release that build.sh built; empty for a llama.cpp from elsewhere
	Stamp    string   // of the archive
	Compiler string   // that built the archive
	Compiled []string // CPU features that the archive uses
	Present  []string // of those known here, the CPU features this machine has
}

// Versions returns the facts about the linked llama.cpp.
func Versions() Version {
	return Version{
		LlamaCPP: C.GoString(C.llama_version()),
		GGML:     C.GoString(C.ggml_version()),
		Commit:   C.GoString(C.ggml_commit()),
		Pin:      C.GoString(C.srt_archive_pin()),
		Stamp:    C.GoString(C.srt_archive_stamp()),
		Compiler: C.GoString(C.srt_archive_compiler()),
		Compiled: strings.Fields(C.GoString(C.srt_archive_features())),
		Present:  presentFeatures(),
	}
}

// cpuFeatures maps the names that build.sh stamps to what the CPU must report.
var cpuFeatures = map[string][]cpuid.FeatureID{
	"sse42": {cpuid.SSE42}, "avx": {cpuid.AVX}, "avx2": {cpuid.AVX2}, "fma": {cpuid.FMA3}, "f16c": {cpuid.F16C}, "bmi2": {cpuid.BMI2},
	"avx_vnni": {cpuid.AVXVNNI}, "avx512": {cpuid.AVX512F, cpuid.AVX512CD, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW},
	"avx512_vbmi": {cpuid.AVX512VBMI}, "avx512_vnni": {cpuid.AVX512VNNI}, "avx512_bf16": {cpuid.AVX512BF16},
	"amx_tile": {cpuid.AMXTILE}, "amx_int8": {cpuid.AMXINT8},
	"dotprod": {cpuid.ASIMDDP}, "fp16": {cpuid.FPHP}, "sve": {cpuid.SVE}, "i8mm": {cpuid.I8MM},
}

func presentFeatures() []string {
	var names []string
	for name, ids := range cpuFeatures {
		if cpuid.CPU.Supports(ids...) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// checkCPU refuses an archive that this CPU cannot run, before an instruction
// of it kills the process.
func checkCPU() error {
	return missingFeatures(strings.Fields(C.GoString(C.srt_archive_features())), presentFeatures())
}

func missingFeatures(compiled, present []string) error {
	var missing []string
	for _, name := range compiled {
		if _, known := cpuFeatures[name]; known && !slices.Contains(present, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("llama: llama.cpp was compiled for %s, which this CPU does not have: run ./build.sh here and build again", strings.Join(missing, ", "))
}
