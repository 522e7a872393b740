package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
)

// A Data is a tensor to be written.
type Data struct {
	Name  string
	Shape []int64 // the row length first
	Type  Type
	Bytes []byte // as many as Shape and Type demand
}

// Write writes a GGUF file of version 3. The tensors' data are aligned to the
// general.alignment among the entries, or to 32 bytes.
func Write(w io.Writer, kvs []KV, tensors []Data) error {
	f := File{Alignment: defaultAlignment, KVs: kvs}
	if v, ok := f.Lookup(keyAlignment); ok {
		u, _ := v.Uint()
		f.Alignment = int64(u)
	}
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, versionMax)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(kvs)))
	for _, kv := range kvs {
		b = appendKV(b, kv)
	}
	var offset int64
	for _, d := range tensors {
		t := Tensor{Name: d.Name, Shape: d.Shape, Type: d.Type, Offset: offset}
		if size := t.size(); size != int64(len(d.Bytes)) {
			return fmt.Errorf("gguf: tensor %q has %d bytes of data, its shape and type take %d", d.Name, len(d.Bytes), size)
		}
		b = appendTensor(b, t)
		offset = f.pad(offset + int64(len(d.Bytes)))
	}
	b = append(b, make([]byte, f.pad(int64(len(b)))-int64(len(b)))...)
	if _, err := w.Write(b); err != nil {
		return err
	}
	for _, d := range tensors {
		if _, err := w.Write(d.Bytes); err != nil {
			return err
		}
		n := int64(len(d.Bytes))
		if _, err := w.Write(make([]byte, f.pad(n)-n)); err != nil {
			return err
		}
	}
	return nil
}

func appendKV(b []byte, kv KV) []byte {
	b = appendString(b, kv.Key)
	b = binary.LittleEndian.AppendUint32(b, uint32(kv.Value.Kind))
	if kv.Value.Kind == KindArray {
		b = binary.LittleEndian.AppendUint32(b, uint32(kv.Value.Elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(kv.Value.n))
	}
	return append(b, kv.Value.data...)
}

func appendTensor(b []byte, t Tensor) []byte {
	b = appendString(b, t.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
	for _, d := range t.Shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(d))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// NewKV makes a metadata entry of a bool, a string, an integer or float of a
// sized type, or a slice of one of them. It panics on any other type.
func NewKV(key string, value any) KV {
	t := reflect.TypeOf(value)
	v := Value{n: 1}
	if t.Kind() == reflect.Slice {
		v = Value{Kind: KindArray, Elem: kindOf(t.Elem()), n: reflect.ValueOf(value).Len()}
	} else {
		v.Kind = kindOf(t)
		v.Elem = v.Kind
	}
	switch x := value.(type) {
	case string:
		v.data = appendString(nil, x)
	case []string:
		for _, s := range x {
			v.data = appendString(v.data, s)
		}
	default:
		v.data, _ = binary.Append(nil, binary.LittleEndian, value)
	}
	return KV{Key: key, Value: v}
}

func kindOf(t reflect.Type) Kind {
	switch t.Kind() {
	case reflect.Uint8:
		return KindUint8
	case reflect.Int8:
		return KindInt8
	case reflect.Uint16:
		return KindUint16
	case reflect.Int16:
		return KindInt16
	case reflect.Uint32:
		return KindUint32
	case reflect.Int32:
		return KindInt32
	case reflect.Float32:
		return KindFloat32
	case reflect.Bool:
		return KindBool
	case reflect.String:
		return KindString
	case reflect.Uint64:
		return KindUint64
	case reflect.Int64:
		return KindInt64
	case reflect.Float64:
		return KindFloat64
	}
	panic("gguf: a value of this type has no place in the metadata")
}
