package speculative

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/sampler"
)

// exact is what rounding may leave between a sum of products of probabilities
// and the product of their sums.
const exact = 1e-12

var ratioRules = []Rule{Block, Token}

// Every course of the ratio rules, for random p and q with zeros: the first
// round in full for drafts of up to 3 tokens, and texts of several rounds.
func TestRatioRulesKeepTheDistribution(t *testing.T) {
	t.Parallel()
	for _, rule := range ratioRules {
		for _, shape := range []struct{ vocab, n, tokens, rounds, tables int }{
			{3, 1, 2, 1, 40}, {3, 2, 3, 1, 40}, {4, 3, 4, 1, 12}, {3, 2, 4, 0, 8}, {3, 1, 3, 0, 20},
		} {
			for seed := range uint64(max(1, draws(shape.tables))) {
				g := game{
					p: chained(drawing, randomLogits(2*seed, shape.vocab, 1.5)), q: chained(drawing, randomLogits(2*seed+1, shape.vocab, 1.5)),
					n: shape.n, tokens: shape.tokens, rounds: shape.rounds, verify: production(rule),
				}
				assert.Less(t, g.distance(t), exact, "%v %+v table %d", rule, shape, seed)
			}
		}
	}
}

// The paper's example: p = (1/3, 2/3), q = (2/3, 1/3), two tokens drafted. Token
// by token 2/3 of each is accepted, 2/3 + 4/9 in all; as a block 11/9.
func TestBlockPaperExample(t *testing.T) {
	for rule, want := range map[Rule]float64{Token: 10. / 9, Block: 11. / 9} {
		g := game{p: table(1./3, 2./3), q: table(2./3, 1./3), n: 2, tokens: 3, rounds: 1, verify: production(rule)}
		assert.Less(t, g.distance(t), exact)
		assert.InDelta(t, want, g.stood, 1e-7, "%v", rule) // logits are float32
	}
}

func TestBlockAcceptsNoLess(t *testing.T) {
	more := 0
	for seed := range uint64(40) {
		g := game{
			p: chained(drawing, randomLogits(seed, 3, 1)), q: chained(drawing, randomLogits(seed+100, 3, 1)),
			n: 2, tokens: 3, rounds: 1, verify: production(Token),
		}
		g.distance(t)
		token := g.stood
		g.verify = production(Block)
		g.distance(t)
		assert.Greater(t, g.stood, token-exact, "table %d", seed)
		if g.stood > token+1e-3 {
			more++
		}
	}
	assert.Greater(t, more, 10)
}

// What is special in drafts and distributions.
func TestRulesInSpecialCases(t *testing.T) {
	p, q := chained(drawing, randomLogits(1, 3, 1)), chained(drawing, randomLogits(2, 3, 1))
	expert, amateur := randomLogits(5, 4, 2), randomLogits(6, 4, 2)
	contrast := sampler.Contrast{Form: sampler.ContrastLogits, Alpha: .1, Beta: .5}
	filters := sampler.Config{
		Temperature: .8, TopK: 3, TopP: .9, MinP: .05, PenaltyLastN: 8, RepeatPenalty: 1.4, PresencePenalty: .3,
		XTCProbability: .5, XTCThreshold: .2, NoRepeatNGram: 3,
	}
	full := func(seed uint64) func([]int32) []float32 { // without bans, which filters must not complete
		logits := randomLogits(seed, 4, 1)
		return func(prefix []int32) []float32 {
			row := logits(prefix)
			for i, x := range row {
				row[i] = max(x, -3-float32(i))
			}
			return row
		}
	}
	for name, g := range map[string]game{
		"p is q":            {p: p, q: p},
		"disjoint supports": {p: table(.3, .7, 0, 0), q: table(0, 0, .4, .6)},
		"one token":         {p: chained(sampler.Config{}, expert), q: q},
		"greedy":            {p: chained(sampler.Config{}, expert), q: chained(sampler.Config{}, amateur)},
		"greedy, the same":  {p: chained(sampler.Config{}, expert), q: chained(sampler.Config{}, expert)},
		"greedy draft":      {p: p, q: chained(sampler.Config{}, randomLogits(2, 3, 1))},
		"filters": {
			p: chained(filters, full(3)), q: chained(filters, full(4)),
			history: []int32{1, 3, 1, 2}, n: 2, tokens: 3, rounds: 1,
		},
		"filters of the target only": {p: chained(filters, full(3)), q: chained(drawing, full(3)), rounds: 1, tokens: 3},
		"an end inside the draft":    {p: p, q: q, isEnd: func(x int32) bool { return x == 1 }},
		"stopped by the prefix": {p: p, q: q, stop: func(prefix []int32) bool {
			return len(prefix) > 0 && (prefix[len(prefix)-1]+int32(len(prefix)))%2 == 0
		}},
		"the doubtful token kept": {p: p, q: q, draft: func(g *game, c chance, text []int32, n int) Draft {
			d := drawn(g, c, text, n)
			for i, x := range d.Tokens {
				if d.Dists[i].ProbOf(x) < .5 {
					return Draft{Tokens: d.Tokens[:i+1], Dists: d.Dists[:i+1]}
				}
			}
			return d
		}},
		"certain proposals": {p: p, draft: certain},
		"contrastive decoding by its amateur": {
			p: chained(drawing, func(prefix []int32) []float32 {
				row := expert(prefix)
				a := slices.Clone(amateur(prefix))
				for i, x := range a {
					a[i] = max(x, -5) // no logits without bound on one side
				}
				contrast.Logits(row, row, a)
				return row
			}),
			q: chained(sampler.Config{Temperature: 1, TopK: 3}, amateur), rounds: 1, tokens: 3,
		},
	} {
		if g.n == 0 {
			g.n = 2
		}
		if g.tokens == 0 {
			g.tokens = 4
		}
		for _, rule := range []Rule{Coupled, Block, Token} {
			g.verify = production(rule)
			assert.Less(t, g.distance(t), exact, "%s, %v", name, rule)
		}
	}
}

// certain proposes tokens that follow from the text.
func certain(g *game, _ chance, text []int32, n int) Draft {
	var d Draft
	for i := range n {
		d.Tokens = append(d.Tokens, int32((len(text)*2+i+sum(text))%3))
	}
	return d
}

func sum(tokens []int32) int {
	n := 0
	for _, x := range tokens {
		n += int(x)
	}
	return n
}

// A token that is proposed for certain stands with its probability, under each
// rule.
func TestCertainProposals(t *testing.T) {
	for _, rule := range []Rule{Coupled, Block, Token} {
		g := game{p: table(.2, .3, .5), n: 1, tokens: 2, verify: production(rule), draft: func(*game, chance, []int32, int) Draft {
			return Draft{Tokens: []int32{1}}
		}}
		assert.Less(t, g.distance(t), exact)
		assert.InDelta(t, .3, g.stood, 1e-7)
	}
}

// With p = (.6, .4) and q = (.5, .5): a drawn token stands with .5 + .4 = .9.
func TestAcceptance(t *testing.T) {
	for _, rule := range ratioRules {
		g := game{p: table(.6, .4), q: table(.5, .5), n: 1, tokens: 2, verify: production(rule)}
		assert.Less(t, g.distance(t), exact)
		assert.InDelta(t, .9, g.stood, 1e-7)
	}
}

// The numbers of a round belong to the round. Keyed by their own position, they
// bias the block rule from the second round on; the rule by token, which looks
// at nothing behind the first token that falls, does not mind.
func TestNumbersOfARoundUsedAgain(t *testing.T) {
	again := func(stream sampler.Stream, first int) func(key) key {
		return func(k key) key {
			if k.at.Stream == stream {
				return key{sampler.Draw{Pos: k.at.Pos + int(k.n) - first, Stream: stream}, 0}
			}
			return k
		}
	}
	for name, rekey := range map[string]func(key) key{
		"drafts": again(sampler.StreamDraft, 0),
		"tests":  again(sampler.StreamAccept, 1),
		"drafts, with the noise of the target": func(k key) key {
			if k.at.Stream == sampler.StreamDraft {
				return key{sampler.Draw{Pos: k.at.Pos + int(k.n), Stream: sampler.StreamDraw}, 0}
			}
			return k
		},
	} {
		block, token := 0.0, 0.0
		for seed := range uint64(10) {
			g := game{
				p: chained(drawing, randomLogits(2*seed, 3, 1)), q: chained(drawing, randomLogits(2*seed+1, 3, 1)),
				n: 2, tokens: 4, verify: production(Block), rekey: rekey,
			}
			block = max(block, g.distance(t))
			g.verify = production(Token)
			token = max(token, g.distance(t))
		}
		assert.Greater(t, block, .01, name)
		assert.Less(t, token, exact, name)
	}
}

// Each of these breaks what the promise rests on. The check must see it.
func TestControls(t *testing.T) {
	p, q := chained(drawing, randomLogits(1, 3, 1)), chained(drawing, randomLogits(2, 3, 1))
	two := func(g game) game {
		g.n, g.tokens = 2, 4
		return g
	}
	residualIsDraft := func(k key) key { // the number of the draft again for the residual
		if k.at.Stream == sampler.StreamResidual {
			return draftKey(k.at.Seed, k.at.Pos, 0)
		}
		return k
	}
	argmax := func(g *game, _ chance, text []int32, n int) Draft {
		d := g.q(text)
		return Draft{Tokens: []int32{d.Token(0)}, Dists: []sampler.Dist{*d}}
	}
	dropped := func(g *game, c chance, text []int32, n int) Draft {
		d := drawn(g, c, text, n)
		for i, x := range d.Tokens {
			if d.Dists[i].ProbOf(x) < .5 {
				return Draft{Tokens: d.Tokens[:i], Dists: d.Dists[:i]}
			}
		}
		return d
	}
	one := func(p, q language) game { return game{p: p, q: q, n: 1, tokens: 2} }
	for _, control := range []struct {
		name  string
		g     game
		least float64 // the distance there must be
		rules []Rule
	}{
		// p (.6, .4), q (.55, .45): token 0 is always drafted and stands; .4 is missing.
		{"ratio test of the most likely token", with(one(table(.6, .4), table(.55, .45)), argmax), .39999, ratioRules},
		{"ratio test of the most likely token, p is q", with(one(table(.4, .6), table(.4, .6)), argmax), .39999, ratioRules},
		{"a drawn token dropped for its small q", with(one(table(.4, .6), table(.4, .6)), dropped), .05, ratioRules},
		{"a drawn token dropped, longer drafts", with(two(game{p: p, q: q}), dropped), .01, ratioRules},
		{"one number for draft and residual", game{p: p, q: q, n: 1, tokens: 2, rekey: residualIsDraft}, .01, ratioRules},
		{"a rejected token left in the cache", two(game{p: p, q: q, keep: 1}), .01, []Rule{Coupled, Block, Token}},
		{"a token that stands dropped from the cache", two(game{p: p, q: q, keep: -1}), .01, []Rule{Coupled, Block, Token}},
	} {
		for _, rule := range control.rules {
			control.g.verify = production(rule)
			assert.Greater(t, control.g.distance(t), control.least, "%s, %v", control.name, rule)
		}
	}

	// Defects of a rule itself, built into another one of the same kind, which
	// is right without them.
	// By token .4 and .1 are left of tokens 0 and 1, by index .1 and .1 of 1 and 2.
	g := game{p: table(.5, .3, .2), q: table(.1, .2, .7), n: 1, tokens: 2}
	g.verify = peer(peerDefects{})
	assert.Less(t, g.distance(t), exact)
	g.verify = peer(peerDefects{byIndex: true})
	assert.Greater(t, g.distance(t), .05, "residual by index in lists of different order")

	// A token x proposed for certain comes out with 1 - (1-p)^2 where a second
	// draw follows the first: p(1-p) too much.
	for _, x := range []float64{.3, .5} {
		g = game{p: table(x, 1-x), n: 1, tokens: 1, draft: func(*game, chance, []int32, int) Draft { return Draft{Tokens: []int32{0}} }}
		g.n, g.tokens = 1, 2
		g.verify = peer(peerDefects{})
		assert.Less(t, g.distance(t), exact)
		g.verify = peer(peerDefects{drawAgain: true})
		assert.Greater(t, g.distance(t), x*(1-x)-1e-6, "second draw after a mismatch")
	}
}

func with(g game, draft func(*game, chance, []int32, int) Draft) game {
	g.draft = draft
	return g
}

type peerDefects struct {
	byIndex   bool // residual by index, not by token
	drawAgain bool // a mismatch is followed by a new draw
}

// peer is a rule for drafts of one token, with defects found in others' code.
func peer(defects peerDefects) verifier {
	return func(c chance, t Target, d Draft, at sampler.Draw) (int, int32, error) {
		next, err := int32(0), error(nil)
		if len(d.Tokens) == 0 || len(d.Dists) == 0 {
			next, err = t.Pick(0)
			if len(d.Tokens) == 0 || next != d.Tokens[0] && !defects.drawAgain {
				return 0, next, err
			}
			if next == d.Tokens[0] {
				next, err = t.Pick(1)
				return 1, next, err
			}
			var p sampler.Dist
			_ = t.Dist(&p, 0)
			return 0, p.Token(c.choose(residualKey(at.Seed, at.Pos), weightsOf(&p), 1)), nil
		}
		var p sampler.Dist
		if err := t.Dist(&p, 0); err != nil {
			return 0, 0, err
		}
		q, x := &d.Dists[0], d.Tokens[0]
		if c.below(testKey(at.Seed, at.Pos, 1), p.ProbOf(x)/q.ProbOf(x)) {
			next, err = t.Pick(1)
			return 1, next, err
		}
		weights, total := make([]float64, p.Len()), 0.0
		for i := range weights {
			other := q.ProbOf(p.Token(i))
			if defects.byIndex {
				other = q.Prob(i)
			}
			weights[i] = max(0, p.Prob(i)-other)
			total += weights[i]
		}
		if total == 0 {
			weights, total = weightsOf(&p), 1
		}
		return 0, p.Token(c.choose(residualKey(at.Seed, at.Pos), weights, total)), nil
	}
}

// A script is a target whose answers are written down. It keeps what it is
// asked.
type script struct {
	picks []int32
	dists []*sampler.Dist
	fails int // the position from which it fails, -1 for none
	asked []string
}

var errBoom = errors.New("boom")

func (s *script) ask(what string, i int) error {
	s.asked = append(s.asked, fmt.Sprint(what, i))
	if s.fails >= 0 && i >= s.fails {
		return errBoom
	}
	return nil
}

func (s *script) Pick(i int) (int32, error) {
	if err := s.ask("pick ", i); err != nil {
		return 0, err
	}
	return s.picks[i], nil
}

func (s *script) Dist(dst *sampler.Dist, i int) error {
	if err := s.ask("dist ", i); err != nil {
		return err
	}
	*dst = *s.dists[i]
	return nil
}

func dist(probs ...float64) *sampler.Dist { return table(probs...)(nil) }

func TestAsksForNoMoreThanItNeeds(t *testing.T) {
	sure := dist(0, 1) // token 1 for certain
	other := dist(1, 0)
	for _, test := range []struct {
		name  string
		rule  Rule
		d     Draft
		s     script
		k     int
		next  int32
		asked []string
	}{
		{"no draft", Coupled, Draft{}, script{picks: []int32{7}}, 0, 7, []string{"pick 0"}},
		{"no draft", Block, Draft{}, script{picks: []int32{7}}, 0, 7, []string{"pick 0"}},
		{"no draft", Token, Draft{}, script{picks: []int32{7}}, 0, 7, []string{"pick 0"}},
		{"all stand", Coupled, Draft{Tokens: []int32{4, 5}}, script{picks: []int32{4, 5, 6}}, 2, 6, []string{"pick 0", "pick 1", "pick 2"}},
		{"one stands", Coupled, Draft{Tokens: []int32{4, 5}}, script{picks: []int32{4, 6, 6}}, 1, 6, []string{"pick 0", "pick 1"}},
		{"distributions do not matter", Coupled, Draft{Tokens: []int32{4}, Dists: make([]sampler.Dist, 7)}, script{picks: []int32{4, 6}}, 1, 6, []string{"pick 0", "pick 1"}},
		{"certain", Block, Draft{Tokens: []int32{4, 5}}, script{picks: []int32{4, 6, 6}}, 1, 6, []string{"pick 0", "pick 1"}},
		{"certain", Token, Draft{Tokens: []int32{4, 5}}, script{picks: []int32{4, 6, 6}}, 1, 6, []string{"pick 0", "pick 1"}},
		{"all stand", Token, Draft{Tokens: []int32{1, 1}, Dists: []sampler.Dist{*sure, *sure}}, script{picks: []int32{9, 9, 6}, dists: []*sampler.Dist{sure, sure}}, 2, 6,
			[]string{"dist 0", "dist 1", "pick 2"}},
		{"one stands", Token, Draft{Tokens: []int32{1, 1, 1}, Dists: []sampler.Dist{*sure, *sure, *sure}}, script{dists: []*sampler.Dist{sure, other, sure}}, 1, 0,
			[]string{"dist 0", "dist 1"}},
		{"all stand", Block, Draft{Tokens: []int32{1, 1}, Dists: []sampler.Dist{*sure, *sure}}, script{picks: []int32{9, 9, 6}, dists: []*sampler.Dist{sure, sure}}, 2, 6,
			[]string{"dist 0", "dist 1", "pick 2"}},
		{"nothing stands behind a token that cannot", Block, Draft{Tokens: []int32{1, 1, 1}, Dists: []sampler.Dist{*sure, *sure, *sure}}, script{dists: []*sampler.Dist{sure, other, sure}}, 1, 0,
			[]string{"dist 0", "dist 1"}},
	} {
		test.s.fails = -1
		var v Verifier
		k, next, err := v.Verify(test.rule, &test.s, test.d, sampler.Draw{Seed: 1, Pos: 5})
		require.NoError(t, err)
		assert.Equal(t, test.k, k, "%v: %s", test.rule, test.name)
		assert.Equal(t, test.next, next, "%v: %s", test.rule, test.name)
		assert.Equal(t, test.asked, test.s.asked, "%v: %s", test.rule, test.name)
	}
}

// An error of the target behind tokens that stand leaves them standing.
func TestTargetFails(t *testing.T) {
	sure := dist(0, 1)
	for _, rule := range []Rule{Coupled, Block, Token} {
		for fails := range 4 {
			s := &script{picks: []int32{1, 1, 1, 1}, dists: []*sampler.Dist{sure, sure, sure}, fails: fails}
			var v Verifier
			k, _, err := v.Verify(rule, s, Draft{Tokens: []int32{1, 1, 1}, Dists: []sampler.Dist{*sure, *sure, *sure}}, sampler.Draw{})
			assert.ErrorIs(t, err, errBoom, "%v", rule)
			assert.Equal(t, fails, k, "%v", rule)
			assert.Len(t, s.asked, fails+1, "%v: not asked again", rule)
		}
		// An error behind a token that does not stand does not matter.
		s := &script{picks: []int32{0}, dists: []*sampler.Dist{dist(1, 0)}, fails: 1}
		var v Verifier
		k, next, err := v.Verify(rule, s, Draft{Tokens: []int32{1, 1}, Dists: []sampler.Dist{*sure, *sure}}, sampler.Draw{})
		require.NoError(t, err)
		assert.Equal(t, 0, k)
		assert.Equal(t, int32(0), next)
	}
}

// A target that fails behind some texts: what was written without an error has
// the distribution of the target, up to where it fails.
func TestBlockBesideErrors(t *testing.T) {
	p, q := chained(drawing, randomLogits(1, 3, 1)), chained(drawing, randomLogits(2, 3, 1))
	lost := func(prefix []int32) bool { return len(prefix) == 2 && (prefix[0]+prefix[1])%2 == 0 }
	pairsFollow(t, p, "a line", func(e *enumerator) []int32 {
		d := drawn(&game{q: q}, e, nil, 3)
		target := failing{&tableTarget{c: e, p: p, draft: d.Tokens}, lost}
		k, next, err := production(Block)(e, target, d, sampler.Draw{})
		text := slices.Clone(d.Tokens[:k])
		if err == nil {
			text = append(text, next)
		}
		return text
	})
}

type failing struct {
	*tableTarget
	lost func(prefix []int32) bool
}

func (f failing) Dist(dst *sampler.Dist, i int) error {
	if f.lost(f.draft[:i]) {
		return errBoom
	}
	return f.tableTarget.Dist(dst, i)
}

func (f failing) Pick(i int) (int32, error) {
	if f.lost(f.draft[:i]) {
		return 0, errBoom
	}
	return f.tableTarget.Pick(i)
}

func TestBadDrafts(t *testing.T) {
	sure := *dist(0, 1)
	for _, test := range []struct {
		rule Rule
		d    Draft
		want string
	}{
		{Rule(3), Draft{}, "speculative: the rule is Rule(3), want Coupled, Block or Token"},
		{Rule(-1), Draft{}, "speculative: the rule is Rule(-1), want Coupled, Block or Token"},
		{Token, Draft{Tokens: []int32{1, 1}, Dists: []sampler.Dist{sure}}, "speculative: 2 drafted tokens come with 1 distributions, want one for each or none"},
		{Block, Draft{Tokens: nil, Dists: []sampler.Dist{sure}}, "speculative: 0 drafted tokens come with 1 distributions, want one for each or none"},
		{Block, Draft{Tokens: []int32{1, 7}, Dists: []sampler.Dist{sure, sure}}, "speculative: drafted token 1 is 7, which its distribution does not list"},
		{Token, Draft{Tokens: []int32{-1}, Dists: []sampler.Dist{sure}}, "speculative: drafted token 0 is -1, which its distribution does not list"},
		{Token, Draft{Tokens: []int32{1}, Dists: []sampler.Dist{{}}}, "speculative: drafted token 0 is 1, which its distribution does not list"},
	} {
		var v Verifier
		s := &script{}
		k, _, err := v.Verify(test.rule, s, test.d, sampler.Draw{})
		assert.EqualError(t, err, test.want)
		assert.Zero(t, k)
		assert.Empty(t, s.asked)
	}
	for _, rule := range ratioRules {
		var v Verifier
		k, _, err := v.Verify(rule, &script{dists: []*sampler.Dist{{}}, fails: -1}, Draft{Tokens: []int32{1}, Dists: []sampler.Dist{sure}}, sampler.Draw{})
		assert.EqualError(t, err, "speculative: the target's distribution after 0 drafted tokens is empty")
		assert.Zero(t, k)
	}
	// Tokens of another world never stand.
	var v Verifier
	k, next, err := v.Verify(Coupled, &script{picks: []int32{3}, fails: -1}, Draft{Tokens: []int32{math.MinInt32}}, sampler.Draw{})
	assert.NoError(t, err)
	assert.Zero(t, k)
	assert.Equal(t, int32(3), next)
}

func TestRuleNames(t *testing.T) {
	for _, r := range []Rule{Coupled, Block, Token} {
		parsed, err := ParseRule(r.String())
		assert.NoError(t, err)
		assert.Equal(t, r, parsed)
	}
	_, err := ParseRule("greedy")
	assert.EqualError(t, err, `speculative: the rule is "greedy", want coupled, block or token`)
}
