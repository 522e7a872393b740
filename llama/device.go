package llama

// #include "shim.h"
import "C"

import "fmt"

// DeviceType is the kind of a device (enum ggml_backend_dev_type).
type DeviceType int

// The kinds of devices.
const (
	DeviceCPU         DeviceType = C.GGML_BACKEND_DEVICE_TYPE_CPU
	DeviceGPU         DeviceType = C.GGML_BACKEND_DEVICE_TYPE_GPU
	DeviceIntegrated  DeviceType = C.GGML_BACKEND_DEVICE_TYPE_IGPU
	DeviceAccelerator DeviceType = C.GGML_BACKEND_DEVICE_TYPE_ACCEL
)

func (t DeviceType) String() string {
	switch t {
	case DeviceCPU:
		return "CPU"
	case DeviceGPU:
		return "GPU"
	case DeviceIntegrated:
		return "integrated GPU"
	case DeviceAccelerator:
		return "accelerator"
	}
	return fmt.Sprintf("DeviceType(%d)", int(t))
}

// A Device is something that can hold and evaluate a part of a model.
type Device struct {
	Name, Description string
	Backend           string
	Type              DeviceType
	Free, Total       uint64 // bytes of memory, 0 where unknown
}

// Devices returns all devices of the backends that are linked in.
func Devices() []Device {
	initialise()
	devices := make([]Device, 0, int(C.ggml_backend_dev_count()))
	for i := range C.ggml_backend_dev_count() {
		dev := C.ggml_backend_dev_get(i)
		d := Device{
			Name:        C.GoString(C.ggml_backend_dev_name(dev)),
			Description: C.GoString(C.ggml_backend_dev_description(dev)),
			Backend:     C.GoString(C.ggml_backend_reg_name(C.ggml_backend_dev_backend_reg(dev))),
			Type:        DeviceType(C.ggml_backend_dev_type(dev)),
		}
		_ = withFault("device memory", func(f *C.srt_fault) bool {
			var free, total C.size_t
			C.srt_device_memory(dev, &free, &total, f)
			d.Free, d.Total = uint64(free), uint64(total)
			return false
		})
		devices = append(devices, d)
	}
	return devices
}

// Backends returns the names of the backends that are linked in.
func Backends() []string {
	initialise()
	var names []string
	for i := range C.ggml_backend_reg_count() {
		names = append(names, C.GoString(C.ggml_backend_reg_name(C.ggml_backend_reg_get(i))))
	}
	return names
}

func deviceByName(name string) C.ggml_backend_dev_t {
	initialise()
	p, free := cString(name)
	defer free()
	return C.ggml_backend_dev_by_name(p)
}

func deviceNames() []string {
	var names []string
	for _, d := range Devices() {
		names = append(names, d.Name)
	}
	return names
}

// AddRPCServer makes the devices of a ggml-rpc-server at endpoint (host:port)
// available, as llama.cpp's own way to spread a model over machines. Its
// authors call it a proof of concept: use it on trusted networks only. The
// archive must have been built with ./build.sh --rpc.
func AddRPCServer(endpoint string) error {
	if endpoint == "" {
		return fmt.Errorf("llama: add RPC server: the endpoint is empty: want host:port")
	}
	initialise()
	p, free := cString(endpoint)
	defer free()
	return withFault("add RPC server "+endpoint, func(f *C.srt_fault) bool { return !bool(C.srt_add_rpc_server(p, f)) })
}
