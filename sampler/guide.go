package sampler

// Guide makes dst the logits of classifier-free guidance (Sanchez et al. 2023,
// arXiv:2306.17806): conditional + (scale - 1) * (conditional - unconditional).
// Scale 1 gives the conditional logits, 0 the unconditional ones, more than 1
// leads away from these. dst may be one of the rows.
//
// A token that is banned in the conditional row stays banned. Elsewhere a
// result may be +Inf or NaN where a logit is infinite or NaN, which a [Sampler]
// reports. Guide panics if the rows differ in length.
func Guide(dst, conditional, unconditional []float32, scale float64) {
	if len(dst) != len(conditional) || len(dst) != len(unconditional) {
		panic("sampler: rows of different lengths")
	}
	for i, c := range conditional {
		if c == negInf {
			dst[i] = negInf
			continue
		}
		dst[i] = float32(float64(c) + (scale-1)*(float64(c)-float64(unconditional[i])))
	}
}
