package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// An Adapter is a LoRA loaded beside a model. Sessions of that model may share
// it. It must be closed after they have, or have set other adapters.
type Adapter struct {
	model  *Model
	file   string
	handle *C.struct_llama_adapter_lora
	users  int // guarded by model.mu
}

// An AdapterScale is an adapter and how much of it is added, 1 for all.
type AdapterScale struct {
	Adapter *Adapter
	Scale   float64
}

// LoadAdapter loads a LoRA from a GGUF file that was made for this model.
func (m *Model) LoadAdapter(path string) (*Adapter, error) {
	if _, err := checkFile(path); err != nil {
		return nil, fmt.Errorf("llama: load adapter %s: %w", path, err)
	}
	a := &Adapter{model: m, file: path}
	p, free := cString(path)
	defer free()
	err := withFault("load adapter "+path, func(f *C.srt_fault) bool {
		a.handle = C.srt_adapter_load(m.ptr(), p, f)
		return a.handle == nil
	})
	if err != nil {
		return nil, err
	}
	m.retain()
	live.Add(1)
	return a, nil
}

func (a *Adapter) ptr() *C.struct_llama_adapter_lora {
	if a.handle == nil {
		panic("llama: adapter is closed")
	}
	return a.handle
}

func (a *Adapter) retain()  { a.model.mu.Lock(); defer a.model.mu.Unlock(); a.users++ }
func (a *Adapter) release() { a.model.mu.Lock(); defer a.model.mu.Unlock(); a.users-- }

// Close frees the adapter. It panics while a session uses it. A second Close
// does nothing.
func (a *Adapter) Close() {
	a.model.mu.Lock()
	users := a.users
	a.model.mu.Unlock()
	if a.handle == nil {
		return
	}
	if users > 0 {
		panic("llama: adapter closed while a session uses it")
	}
	_ = withFault("free adapter", func(f *C.srt_fault) bool { C.srt_adapter_free(a.handle, f); return false })
	a.handle = nil
	a.model.release()
	live.Add(-1)
}

// SetAdapters makes the session add these adapters to its model, in place of
// those set before; none removes all. What the KV cache holds was evaluated
// with the earlier ones: Clear it where that matters.
func (s *Session) SetAdapters(adapters ...AdapterScale) error {
	if _, err := s.ready("set adapters"); err != nil {
		return err
	}
	handles := make([]*C.struct_llama_adapter_lora, len(adapters))
	scales := make([]C.float, len(adapters))
	for i, a := range adapters {
		if a.Adapter.model != s.model {
			return fmt.Errorf("llama: set adapters: %s was loaded for another model", a.Adapter.file)
		}
		if math.IsNaN(a.Scale) || math.Abs(a.Scale) > math.MaxFloat32 {
			return fmt.Errorf("llama: set adapters: scale %v: want a finite number", a.Scale)
		}
		handles[i], scales[i] = a.Adapter.ptr(), C.float(a.Scale)
	}
	h, sc := cArray(handles), cArray(scales)
	defer C.free(unsafe.Pointer(h))
	defer C.free(unsafe.Pointer(sc))
	err := withFault("set adapters", func(f *C.srt_fault) bool {
		return C.srt_adapters_set(s.handle, h, C.size_t(len(adapters)), sc, f) != 0
	})
	if err != nil {
		return err
	}
	for _, a := range adapters {
		a.Adapter.retain()
	}
	for _, a := range s.adapters {
		a.Adapter.release()
	}
	s.adapters = append([]AdapterScale(nil), adapters...)
	s.probed = nil
	return nil
}
