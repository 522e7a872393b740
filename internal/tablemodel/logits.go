package tablemodel

// Hashed returns logits in [-4, 4) that are a hash of salt, the whole prefix
// and the token: no two prefixes are likely to share a row.
func Hashed(salt uint64) func(dst []float32, prefix []int32) {
	return func(dst []float32, prefix []int32) {
		h := mix(salt)
		for _, t := range prefix {
			h = mix(h ^ uint64(uint32(t)))
		}
		for v := range dst {
			dst[v] = float32(mix(h^uint64(v)<<32)>>40)/(1<<21) - 4
		}
	}
}

// Script returns logits that follow a text: after the prompt's n tokens come
// the tokens of text one by one, and after those always the last of them. The
// wanted token has logit 10, all others 0.
func Script(n int, text ...int32) func(dst []float32, prefix []int32) {
	return func(dst []float32, prefix []int32) {
		clear(dst)
		i := min(max(len(prefix)-n, 0), len(text)-1)
		dst[text[i]] = 10
	}
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) after one
// step of its counter.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
