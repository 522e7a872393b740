package llama

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// checkCacheMemory refuses a KV cache that cannot fit. llama.cpp would allocate
// it, for the system promises more memory than it has, and the process would be
// killed while the cache is cleared.
func checkCacheMemory(m *Model, facts Facts, o SessionOptions, cells int) error {
	need := leastCacheBytes(m, facts, o, cells)
	have, ok := availableMemory()
	if !ok || need <= have || onGPU(o) {
		return nil
	}
	return fmt.Errorf("llama: a KV cache of %d tokens needs at least %.1f GiB and %.1f GiB are free: choose a smaller context, fewer sequences or a smaller cache type",
		cells, gib(need), gib(have))
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// onGPU reports whether the cache may lie in memory that is not the system's.
func onGPU(o SessionOptions) bool {
	if o.CacheOnHost {
		return false
	}
	for _, d := range Devices() {
		if d.Type == DeviceGPU {
			return true
		}
	}
	return false
}

// leastCacheBytes returns a lower bound: exact for plain attention, what the
// full layers surely need for sliding windows, nothing for other memories.
func leastCacheBytes(m *Model, facts Facts, o SessionOptions, cells int) uint64 {
	mla := facts.Architecture + ".attention.kv_lora_rank"
	if _, compressed := m.Meta(mla); compressed || facts.Recurrent || facts.Hybrid || facts.Heads == 0 {
		return 0
	}
	layers := facts.Layers
	if facts.SlidingWindow > 0 && !o.FullSWA {
		layers = max(1, layers/8) // the most extreme mix in use has one full layer in eight
	}
	perCell := o.KeyType.bytes(facts.KeySize*facts.KVHeads) + o.ValueType.bytes(m.headSize("value_length", facts)*facts.KVHeads)
	return uint64(cells) * uint64(layers) * perCell
}

// headSize returns the width of the keys or values of a head: what the metadata
// has under a key of the attention, else an equal share of the embedding.
func (m *Model) headSize(key string, facts Facts) int {
	if text, ok := m.Meta(facts.Architecture + ".attention." + key); ok {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			return n
		}
	}
	return facts.Embedding / max(1, facts.Heads)
}

// availableMemory returns what the system and the control group of this
// process still give, in bytes, and whether that could be found out.
func availableMemory() (uint64, bool) {
	free, ok := memAvailable("/proc/meminfo")
	limit, limited := groupFree("/sys/fs/cgroup")
	if limited && (!ok || limit < free) {
		return limit, true
	}
	return free, ok
}

func memAvailable(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			fields := strings.Fields(rest)
			if len(fields) < 1 {
				return 0, false
			}
			kib, err := strconv.ParseUint(fields[0], 10, 54)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

func groupFree(root string) (uint64, bool) {
	read := func(name string) (uint64, bool) {
		text, err := os.ReadFile(root + "/" + name)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" where there is no limit
		return n, err == nil
	}
	limit, ok := read("memory.max")
	used, ok2 := read("memory.current")
	if !ok || !ok2 {
		return 0, false
	}
	return limit - min(used, limit), true
}
