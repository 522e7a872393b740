package llama

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// A Pool is a set of compute threads of ggml that several sessions share: a
// target and its drafter never compute at the same time, and two sets of
// spinning threads on the same cores would cost each other most of their speed.
// It may be used by sessions of several goroutines; their decodes take turns.
//
// Threads poll for work for a moment after a decode and then sleep; Session.Idle
// sends them to sleep at once.
type Pool struct {
	mu      sync.Mutex // held during a decode
	handle  *C.struct_ggml_threadpool
	threads int
	users   int  // sessions attached
	broken  bool // an assertion left threads at a barrier: they cannot be joined
}

// pollLevel is ggml's default: threads spin for some milliseconds after a
// decode, long enough for the next token's sampling.
const pollLevel = 50

// NewPool starts threads-1 threads (the caller of a decode is the last);
// 0 means DefaultThreads. It must be closed, after the sessions that use it.
func NewPool(threads int) (*Pool, error) {
	if threads == 0 {
		threads = DefaultThreads()
	}
	if threads < 0 || threads > C.GGML_MAX_N_THREADS {
		return nil, fmt.Errorf("llama: %d threads: want 1 to %d, or 0 for one a core", threads, int(C.GGML_MAX_N_THREADS))
	}
	initialise()
	p := &Pool{threads: threads}
	err := withFault("start threads", func(f *C.srt_fault) bool {
		p.handle = C.srt_pool_new(C.int32_t(threads), pollLevel, f)
		return p.handle == nil
	})
	if err != nil {
		return nil, err
	}
	live.Add(1)
	return p, nil
}

// Threads returns how many threads compute, the caller's included.
func (p *Pool) Threads() int { return p.threads }

func (p *Pool) ptr() *C.struct_ggml_threadpool {
	if p.handle == nil {
		panic("llama: thread pool is closed")
	}
	return p.handle
}

func (p *Pool) attach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ptr()
	if p.broken {
		return &Error{Op: "attach the thread pool", Err: ErrBroken}
	}
	p.users++
	return nil
}

func (p *Pool) detach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
}

// pause lets the threads sleep now instead of in a moment. A decode wakes them.
func (p *Pool) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle != nil && !p.broken {
		C.ggml_threadpool_pause(p.handle)
	}
}

// Close joins the threads. It panics while a session uses the pool. A second
// Close does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == nil {
		return
	}
	if p.users > 0 {
		panic("llama: thread pool closed before its sessions")
	}
	if !p.broken { // else they wait for a caller that an assertion took away: leaked
		_ = withFault("stop threads", func(f *C.srt_fault) bool { C.srt_pool_free(p.handle, f); return false })
	}
	p.handle = nil
	live.Add(-1)
}

// startProcessors is what the control group and the affinity grant, as the Go
// runtime found it. Later calls of runtime.GOMAXPROCS are about goroutines, and
// no reason to compute with fewer threads.
var startProcessors = runtime.GOMAXPROCS(0)

// DefaultThreads returns the number of physical cores this process may use:
// those its affinity allows, one thread a core, at most what its control group
// grants.
func DefaultThreads() int {
	n := startProcessors
	if cores, err := physicalCores("/sys/devices/system/cpu", runtime.NumCPU()); err == nil {
		n = min(n, cores)
	}
	return max(1, n)
}

// physicalCores counts the cores below root and scales the count to the usable
// processors: with 2 threads a core, 8 usable processors are 4 cores.
func physicalCores(root string, usable int) (int, error) {
	lists, err := filepath.Glob(filepath.Join(root, "cpu[0-9]*", "topology", "thread_siblings_list"))
	if err != nil {
		return 0, err
	}
	if len(lists) == 0 {
		return 0, errors.New("no topology")
	}
	cores := map[string]bool{}
	for _, name := range lists {
		siblings, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		cores[strings.TrimSpace(string(siblings))] = true
	}
	return max(1, (usable*len(cores)+len(lists)-1)/len(lists)), nil
}
