package sampler

import (
	"fmt"
	"math"
)

// mirostat keeps the surprise of the text, in bits, near tau (Basu et al. 2020,
// arXiv:2007.14966; llama.cpp's llama_sampler_mirostat and _v2). Its state mu
// limits the surprise: after each token it moves by eta times how far that
// token's surprise was from tau.
type mirostat struct {
	version  int
	tau, eta float64
	mu       float64
	offered
}

func newMirostat(c *Config) (Step, error) {
	switch {
	case c.Mirostat < 0 || c.Mirostat > 2:
		return nil, badValue("mirostat", c.Mirostat, "0 (off), 1 or 2")
	case !(c.MirostatTau >= 0 && finite(2*c.MirostatTau)):
		return nil, badValue("the mirostat tau", c.MirostatTau, "a finite number, 0 or more")
	case !(c.MirostatEta >= 0 && finite(c.MirostatEta)):
		return nil, badValue("the mirostat eta", c.MirostatEta, "a finite number, 0 or more")
	case c.Mirostat == 0:
		return nil, nil
	case c.MirostatTau == 0:
		return nil, badValue("the mirostat tau", c.MirostatTau, "above 0, since mirostat is on")
	case c.MirostatEta == 0:
		return nil, badValue("the mirostat eta", c.MirostatEta, "above 0, since mirostat is on")
	}
	return &mirostat{version: c.Mirostat, tau: c.MirostatTau, eta: c.MirostatEta, mu: 2 * c.MirostatTau}, nil
}

func (f *mirostat) Apply(c *Candidates, _ []int32) error {
	if f.version == 1 {
		f.keepZipf(c)
	} else {
		c.keepProb(-f.mu*math.Ln2, c.spread(), 1)
	}
	if c.err == nil {
		f.hold(c)
	}
	return nil
}

// keepZipf keeps the k most likely tokens, with a k that gives a surprise of mu
// if probabilities follow Zipf's law. Its exponent is estimated from the most
// likely tokens. Where it is not above 1, k is infinite.
func (f *mirostat) keepZipf(c *Candidates) {
	const sample = 100 // llama.cpp's m
	wasRow := !c.listed
	if wasRow {
		c.KeepTop(sample)
	}
	c.Sort()
	if c.err != nil {
		return
	}
	logs, squares := 0.0, 0.0
	for i := range min(sample, len(c.list)) - 1 {
		t := math.Log(float64(i+2) / float64(i+1))
		logs += t * (float64(c.list[i].Logit) - float64(c.list[i+1].Logit)) / c.temp
		squares += t * t
	}
	n := float64(len(c.row))
	s := logs / squares
	k := n
	if s > 1+1e-6 && finite(s) {
		k = math.Pow((s-1)*math.Exp2(f.mu)/(1-math.Pow(n, 1-s)), 1/s)
	}
	if wasRow {
		c.listed = false // the row still has them all
	}
	if k < n {
		c.KeepTop(max(1, int(k)))
	}
	c.expand()
}

// Accept moves mu by the token's surprise among those that were left. For a
// token that was not there mu stays.
func (f *mirostat) Accept(token int32) {
	if p := f.take(token); p > 0 {
		f.mu -= f.eta * (-math.Log2(p) - f.tau)
	}
}

func (f *mirostat) Clone() Stateful {
	n := *f
	n.offered = f.offered.clone()
	return &n
}

func (f *mirostat) String() string {
	return fmt.Sprintf("version %d, tau %v, eta %v", f.version, f.tau, f.eta)
}
