package sampler

// mt19937 is the Mersenne twister (Matsumoto, Nishimura 1998), the generator of
// llama.cpp, as a function of seed and index: it remembers where it is, so
// that going forward is cheap.
type mt19937 struct {
	state [624]uint32
	seed  uint32
	block int // of 624 words, from 1; 0 before the first use
}

// word returns the i-th number, from 0, of the generator with a seed.
func (m *mt19937) word(seed uint32, i int) uint32 {
	block := i/len(m.state) + 1
	if m.block == 0 || m.seed != seed || m.block > block {
		m.seed, m.block = seed, 0
		for j := range m.state {
			m.state[j] = seed
			seed = 1812433253*(seed^seed>>30) + uint32(j) + 1
		}
	}
	for ; m.block < block; m.block++ {
		m.twist()
	}
	x := m.state[i%len(m.state)]
	x ^= x >> 11
	x ^= x << 7 & 0x9d2c5680
	x ^= x << 15 & 0xefc60000
	return x ^ x>>18
}

func (m *mt19937) twist() {
	s := &m.state
	for i := range s {
		x := s[i]&(1<<31) | s[(i+1)%len(s)]&(1<<31-1)
		s[i] = s[(i+397)%len(s)] ^ x>>1 ^ x&1*0x9908b0df
	}
}

// double returns the i-th of the numbers from 0 to below 1 that
// std::uniform_real_distribution<double> of libstdc++ makes, of two words each.
func (m *mt19937) double(seed uint32, i int) float64 {
	low, high := m.word(seed, 2*i), m.word(seed, 2*i+1)
	return min((float64(low)+float64(high)*0x1p32)*0x1p-64, 1-0x1p-53)
}

// float does the same for float, of one word each.
func (m *mt19937) float(seed uint32, i int) float64 {
	return float64(min(float32(m.word(seed, i))*0x1p-32, 1-0x1p-24))
}
