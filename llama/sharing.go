package llama

// sharing says how many of their first tokens two sequences have in the same
// cells of a unified cache. It is nil for separate caches, which share nothing.
type sharing [][]int

func newSharing(sequences int) sharing {
	s := make(sharing, sequences)
	for i := range s {
		s[i] = make([]int, sequences)
	}
	return s
}

// copied notes that dst now has the n tokens of src.
func (s sharing) copied(dst, src, n int) {
	if s == nil {
		return
	}
	for other, prefix := range s[src] {
		s[dst][other], s[other][dst] = prefix, prefix
	}
	s[dst][src], s[src][dst], s[dst][dst] = n, n, 0
}

// cut notes that seq has only its first n tokens in the old cells, if that.
func (s sharing) cut(seq, n int) {
	if s == nil {
		return
	}
	for other := range s[seq] {
		s[seq][other] = min(s[seq][other], n)
		s[other][seq] = s[seq][other]
	}
}

// behind returns a sequence that shares tokens of seq from the n-th on, or -1.
func (s sharing) behind(seq, n int) int {
	if s != nil {
		for other, prefix := range s[seq] {
			if prefix > n {
				return other
			}
		}
	}
	return -1
}
