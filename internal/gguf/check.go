package gguf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	keyAlignment = "general.alignment"

	maxKeyLength  = 1<<16 - 1 // bytes
	maxNameLength = 63        // bytes of a tensor's name in ggml

	// ggml refuses memory of a caller's that does not begin at such an address.
	dataAlignment = 32
)

// Check reports the first reason not to give the file to llama.cpp: anything
// that could not be read, lies about its size, or would make llama.cpp divide
// by zero, read out of bounds, run out of memory or call abort(). Whether
// llama.cpp knows the architecture and finds all tensors it needs is left to
// llama.cpp, which answers that with an error.
func (f *File) Check() error {
	if f.err != nil {
		return f.err
	}
	for _, check := range []func(*File) error{
		checkKeys, checkAlignment, checkTensors, checkLayout, checkMeta,
	} {
		if err := check(f); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys makes sure that C code sees the same keys as this package does.
func checkKeys(f *File) error {
	seen := make(map[string]int, len(f.KVs))
	for i, kv := range f.KVs {
		if kv.Key == "" || len(kv.Key) > maxKeyLength {
			return failf(kv.Offset, "a key of %d bytes: from 1 to %d are allowed", len(kv.Key), maxKeyLength)
		}
		if strings.IndexByte(kv.Key, 0) >= 0 {
			return failf(kv.Offset, "key %q has a zero byte", clip(kv.Key))
		}
		if j, ok := seen[kv.Key]; ok {
			return failf(kv.Offset, "key %q occurs twice, first at byte %d", clip(kv.Key), f.KVs[j].Offset)
		}
		seen[kv.Key] = i
	}
	return nil
}

func checkAlignment(f *File) error {
	i := slices.IndexFunc(f.KVs, func(kv KV) bool { return kv.Key == keyAlignment })
	if i < 0 {
		return nil
	}
	kv := f.KVs[i]
	if kv.Value.Kind != KindUint32 {
		return failf(kv.Offset, "%s is %v: it must be u32", keyAlignment, kv.Value.Kind)
	}
	if f.Alignment <= 0 || f.Alignment&(f.Alignment-1) != 0 {
		return failf(kv.Offset, "%s is %d: it must be a power of two", keyAlignment, f.Alignment)
	}
	return nil
}

// checkTensors checks every tensor by itself.
func checkTensors(f *File) error {
	seen := make(map[string]int64, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Name == "" || len(t.Name) > maxNameLength {
			return failf(t.at, "the name of tensor %d has %d bytes: from 1 to %d are allowed", i+1, len(t.Name), maxNameLength)
		}
		if strings.IndexByte(t.Name, 0) >= 0 {
			return failf(t.at, "the tensor name %q has a zero byte", t.Name)
		}
		if at, ok := seen[t.Name]; ok {
			return failf(t.at, "tensor %q occurs twice, first at byte %d", t.Name, at)
		}
		seen[t.Name] = t.at
		if what := t.fault(); what != "" {
			return failf(t.at, "tensor %q %s", t.Name, what)
		}
	}
	return nil
}

// fault says what is wrong with a tensor by itself, or nothing.
func (t *Tensor) fault() string {
	for i, d := range t.Shape {
		if d <= 0 {
			return fmt.Sprintf("has %d as dimension %d: it must be positive", d, i+1)
		}
	}
	if t.Elements() < 0 {
		return fmt.Sprintf("has the shape %d, with more elements than 63 bits can count", t.Shape)
	}
	block, _ := t.Type.Block()
	if block == 0 {
		return fmt.Sprintf("has the unknown %v", t.Type)
	}
	row := int64(1)
	if len(t.Shape) > 0 {
		row = t.Shape[0]
	}
	if row%block != 0 {
		return fmt.Sprintf("has rows of %d elements: %v needs a multiple of %d", row, t.Type, block)
	}
	if t.Size < 0 {
		return fmt.Sprintf("has the shape %d, with more bytes than 63 bits can count", t.Shape)
	}
	switch {
	case t.Type.use() == inner:
		return fmt.Sprintf("is stored as %v, which ggml keeps for results in between", t.Type)
	case t.Type.use() == index && !t.named(indices):
		return fmt.Sprintf("is stored as %v: a weight must be F32, F16, BF16 or quantised", t.Type)
	case t.Type != F32 && t.Type.use() == weight && t.needsF32():
		return fmt.Sprintf("is stored as %v: llama.cpp adds and multiplies with it element by element, for which it must be F32", t.Type)
	}
	return ""
}

// Tensors of whole numbers.
var indices = []string{"d2t", "ffn_gate_tid2eid", "masked_embd_ordering"}

// Tensors, by their role, that ggml's kernels take for F32 without asking, on
// threads where an abort cannot be caught: norms, biases, convolutions and the
// like. So are all of one dimension, except those that matrices lists.
var elementwise = regexp.MustCompile(`norm|^(token_types|ssm_[ad]|(ssm|ple)_conv1d(_[qkv])?|shortconv\.conv|(attn|ffn)_conv_base|time_mix_(first|lerp_.*)|channel_mix_lerp_.*)$`)

// Matrices that may have a single row. Where they have, the file may give them
// one dimension and any type.
var matrices = []string{"cls", "cls.output", "conf_proj", "ffn_gate_inp", "ffn_gate_inp_shexp"}

// named reports whether the name contains one of those.
func (t *Tensor) named(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(t.Name, n) })
}

var layerPrefix = regexp.MustCompile(`^(?:(?:enc\.|dec\.)?blk|posnet|convnext)\.\d+\.`)

// role returns what a tensor's name says beside the layer: attn_norm and weight
// for blk.3.attn_norm.weight.
func (t *Tensor) role() (role, suffix string) {
	role = t.Name[len(layerPrefix.FindString(t.Name)):]
	if i := strings.LastIndexByte(role, '.'); i >= 0 && slices.Contains([]string{"weight", "bias"}, role[i+1:]) {
		return role[:i], role[i+1:]
	}
	return role, ""
}

func (t *Tensor) needsF32() bool {
	if strings.HasSuffix(t.Name, ".lora_a") || strings.HasSuffix(t.Name, ".lora_b") {
		return false
	}
	role, suffix := t.role()
	if suffix == "bias" || elementwise.MatchString(role) {
		return true
	}
	return len(t.Shape) <= 1 && !slices.Contains(matrices, role)
}

// checkLayout checks that the tensors' data follow one another, as llama.cpp
// demands, at addresses that ggml accepts, and inside the file.
func checkLayout(f *File) error {
	if len(f.Tensors) > 0 && f.DataOffset > f.Size {
		return failf(f.Size, "the tensors' data begin at byte %d, but the file ends after %d", f.DataOffset, f.Size)
	}
	var next int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != next {
			return failf(t.at, "tensor %q has its data at offset %d: they must follow the tensor before, at %d", t.Name, uint64(t.Offset), next)
		}
		if at := f.DataOffset + t.Offset; at%dataAlignment != 0 {
			return failf(t.at, "tensor %q has its data at byte %d: it must be a multiple of %d", t.Name, at, dataAlignment)
		}
		if left := f.Size - f.DataOffset - t.Offset; t.Size > left {
			return failf(t.at, "tensor %q has %d bytes of data at byte %d, but the file ends after %d", t.Name, t.Size, f.DataOffset+t.Offset, max(left, 0))
		}
		next = f.pad(t.Offset + t.Size)
	}
	return nil
}
