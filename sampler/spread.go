package sampler

import "math"

// A spread says how the probability lies among the candidates. The depth of a
// token is how far its logit is below the highest.
type spread struct {
	top   float64 // the highest logit
	inv   float64 // 1 over the temperature
	mass  float64 // sum of exp(-depth/temperature): 1 over the highest probability
	depth float64 // mean depth under the distribution
}

// entropy returns the entropy in nats.
func (s spread) entropy() float64 { return math.Log(s.mass) + s.depth*s.inv }

// spread measures the candidates.
func (c *Candidates) spread() spread {
	top, inv := c.Max(), 1/c.temp
	switch {
	case c.err != nil:
		return spread{top: float64(top), inv: inv, mass: 1}
	case !c.listed:
		mass, moment := expSum(c.row, top, inv, negInf)
		return spread{top: float64(top), inv: inv, mass: mass, depth: -moment / inv / mass}
	}
	s := spread{top: float64(top), inv: inv}
	for _, x := range c.list {
		depth := s.top - float64(x.Logit)
		if w := expOf(-depth * inv); w > 0 {
			s.mass += w
			s.depth += w * depth
		}
	}
	s.depth /= s.mass
	return s
}

// keepProb removes the candidates whose probability has a logarithm below the
// bound. The first least stay in any case.
func (c *Candidates) keepProb(bound float64, s spread, least int) {
	c.keepAbove(s.top+c.temp*(bound+math.Log(s.mass)), least)
}
