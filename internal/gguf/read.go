// Package gguf reads, checks and writes GGUF files, in which llama.cpp keeps
// models and adapters: metadata, descriptions of tensors, and their data.
//
//	f, err := gguf.ReadFile("model.gguf")
//	if err == nil {
//		err = f.Check()
//	}
//
// Reading is forgiving: of a damaged file it returns what it could read. Check
// is strict: what it lets through can be given to llama.cpp, which answers some
// malformed files with the end of the process. A File does not change once it
// is read; any number of goroutines may use it.
package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	magic            = "GGUF"
	versionMin       = 2
	versionMax       = 3
	defaultAlignment = 32
	maxDims          = 4

	// Far beyond any model; they bound memory and time on files that lie.
	maxHeader  = 256 << 20 // bytes of metadata and descriptions
	maxKVs     = 1 << 16
	maxTensors = 1 << 16
)

// A File is the header of a GGUF file.
type File struct {
	Version    uint32
	Alignment  int64 // of the tensors' data
	KVs        []KV
	Tensors    []Tensor
	DataOffset int64 // where the tensors' data begin
	Size       int64 // bytes of the file

	err error // what ended the reading early
}

// ReadFile reads the header of the file at path. On an error that is not about
// opening the file it also returns what could be read, as Read does.
func ReadFile(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("gguf: not a regular file")
	}
	return Read(r, info.Size())
}

// Read reads the header of a GGUF file of the given size in bytes. It always
// returns a File: on an error the one with what stands before the fault. The
// error says at which byte and what is wrong. Whatever the file claims, memory
// and time stay proportional to its size.
func Read(r io.ReaderAt, size int64) (*File, error) {
	f := &File{Alignment: defaultAlignment, Size: size}
	c := &cursor{r: r, size: size}
	f.err = f.read(c)
	return f, f.err
}

func (f *File) read(c *cursor) error {
	m, err := c.take(4, "the magic")
	if err != nil {
		return err
	}
	if string(m) != magic {
		return failf(0, "not a GGUF file: it begins with %q, not with %q", m, magic)
	}
	if f.Version, err = c.u32("the version"); err != nil {
		return err
	}
	switch {
	case f.Version&0xffff == 0 && f.Version != 0:
		return failf(4, "the file is big-endian: only little-endian files can be read")
	case f.Version < versionMin || f.Version > versionMax:
		return failf(4, "version %d: only versions %d to %d can be read", f.Version, versionMin, versionMax)
	}
	nTensors, err := c.count("the number of tensors", maxTensors)
	if err != nil {
		return err
	}
	nKVs, err := c.count("the number of metadata entries", maxKVs)
	if err != nil {
		return err
	}
	for i := range nKVs {
		kv, err := c.kv()
		if err != nil {
			return fmt.Errorf("%w (metadata entry %d of %d, %q)", err, i+1, nKVs, clip(kv.Key))
		}
		f.KVs = append(f.KVs, kv)
	}
	if v, ok := f.Lookup(keyAlignment); ok && v.Kind == KindUint32 {
		u, _ := v.Uint()
		f.Alignment = int64(u)
	}
	for i := range nTensors {
		t, err := c.tensor()
		if err != nil {
			return fmt.Errorf("%w (tensor %d of %d, %q)", err, i+1, nTensors, clip(t.Name))
		}
		f.Tensors = append(f.Tensors, t)
	}
	f.DataOffset = c.pos
	if len(f.Tensors) > 0 {
		f.DataOffset = f.pad(c.pos)
	}
	return nil
}

// pad rounds n up to the alignment.
func (f *File) pad(n int64) int64 {
	if f.Alignment <= 0 {
		return n
	}
	return (n + f.Alignment - 1) / f.Alignment * f.Alignment
}

// Lookup returns the first value that the file has for key.
func (f *File) Lookup(key string) (Value, bool) {
	for i := range f.KVs {
		if f.KVs[i].Key == key {
			return f.KVs[i].Value, true
		}
	}
	return Value{}, false
}

// A cursor walks over the beginning of a file, which it reads piece by piece
// and keeps.
type cursor struct {
	r    io.ReaderAt
	size int64
	buf  []byte // the file up to some byte at or behind pos
	pos  int64
}

// take returns the next n bytes. Values keep slices of them.
func (c *cursor) take(n uint64, what string) ([]byte, error) {
	left := uint64(c.size - c.pos)
	if n > left {
		return nil, failf(c.pos, "%s takes %d bytes, but the file ends after %d", what, n, left)
	}
	if n > uint64(maxHeader-c.pos) {
		return nil, failf(c.pos, "%s takes %d bytes: the header may take %d bytes at most", what, n, maxHeader)
	}
	end := c.pos + int64(n)
	if err := c.fill(end); err != nil {
		return nil, err
	}
	b := c.buf[c.pos:end:end]
	c.pos = end
	return b, nil
}

// fill makes buf reach at least to end, which lies inside the file.
func (c *cursor) fill(end int64) error {
	have := int64(len(c.buf))
	if end <= have {
		return nil
	}
	grown := make([]byte, min(c.size, max(end, 2*have, 64<<10)))
	copy(grown, c.buf)
	n, err := c.r.ReadAt(grown[have:], have)
	if n < len(grown)-int(have) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("gguf: byte %d: %w", have+int64(n), err)
	}
	c.buf = grown
	return nil
}

func (c *cursor) u32(what string) (uint32, error) {
	b, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) u64(what string) (uint64, error) {
	b, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (c *cursor) count(what string, most uint64) (int, error) {
	n, err := c.u64(what)
	if err != nil {
		return 0, err
	}
	if n > most {
		return 0, failf(c.pos-8, "%s is %d: at most %d are allowed", what, n, most)
	}
	return int(n), nil
}

// str returns the next string together with its length, as Value keeps it.
func (c *cursor) str(what string) ([]byte, error) {
	start := c.pos
	n, err := c.u64(what)
	if err != nil {
		return nil, err
	}
	if _, err := c.take(n, what); err != nil {
		return nil, err
	}
	return c.buf[start:c.pos:c.pos], nil
}

func (c *cursor) kv() (KV, error) {
	kv := KV{Offset: c.pos}
	key, err := c.str("a key")
	if err != nil {
		return kv, err
	}
	kv.Key = string(key[8:])
	kind, err := c.u32("the kind of a value")
	if err != nil {
		return kv, err
	}
	v := Value{Kind: Kind(kind), Elem: Kind(kind), n: 1}
	if v.Kind == KindArray {
		if kind, err = c.u32("the kind of an array"); err != nil {
			return kv, err
		}
		v.Elem = Kind(kind)
	}
	if v.Elem > KindFloat64 || v.Elem == KindArray {
		return kv, failf(c.pos-4, "values of %v cannot be read", v.Elem)
	}
	n := uint64(1)
	if v.Kind == KindArray {
		if n, err = c.u64("the length of an array"); err != nil {
			return kv, err
		}
	}
	if v.data, err = c.values(v.Elem, n); err != nil {
		return kv, err
	}
	v.n = int(n)
	kv.Value = v
	return kv, nil
}

// values returns the bytes of the next n values of a kind.
func (c *cursor) values(k Kind, n uint64) ([]byte, error) {
	size, fixed := k.size()
	if !fixed {
		size = 8 // of a string at least
	}
	if left := uint64(c.size - c.pos); n > 1 && n > left/uint64(size) {
		return nil, failf(c.pos, "an array of %d values does not fit: the file ends after %d bytes", n, left)
	}
	if fixed {
		return c.take(n*uint64(size), "a value")
	}
	start := c.pos
	for range n {
		if _, err := c.str("a string"); err != nil {
			return nil, err
		}
	}
	return c.buf[start:c.pos:c.pos], nil
}

func (c *cursor) tensor() (Tensor, error) {
	t := Tensor{at: c.pos, Size: -1}
	name, err := c.str("the name of a tensor")
	if err != nil {
		return t, err
	}
	t.Name = string(name[8:])
	dims, err := c.u32("the number of dimensions")
	if err != nil {
		return t, err
	}
	if dims > maxDims {
		return t, failf(c.pos-4, "a tensor of %d dimensions: at most %d are allowed", dims, maxDims)
	}
	for range dims {
		d, err := c.u64("a dimension")
		if err != nil {
			return t, err
		}
		t.Shape = append(t.Shape, int64(d))
	}
	typ, err := c.u32("the type of a tensor")
	if err != nil {
		return t, err
	}
	t.Type = Type(typ)
	offset, err := c.u64("the offset of a tensor")
	if err != nil {
		return t, err
	}
	t.Offset = int64(offset)
	t.Size = t.size()
	return t, nil
}

// failf makes the error for a fault at a byte of the file.
func failf(at int64, format string, args ...any) error {
	return fmt.Errorf("gguf: byte %d: %s", at, fmt.Sprintf(format, args...))
}

// clip shortens a name from the file for a message.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// errorf makes the error for a fault that has no place in the file.
func errorf(format string, args ...any) error {
	return fmt.Errorf("gguf: "+format, args...)
}
