package speculative

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/sampler"
)

// A shape lists how many children are drawn for each node at each depth.
type shape []int

// grow draws a tree behind a text, depth first.
func (s shape) grow(g *game, c chance, text []int32, replacement bool) *Tree {
	tree := &Tree{Replacement: replacement}
	var below func(node int, prefix []int32)
	below = func(node int, prefix []int32) {
		if depth := len(prefix) - len(text); depth < len(s) {
			for range s[depth] {
				if child := tree.draw(c, node, g.q(prefix), 0, len(text)); child != Root {
					below(child, append(slices.Clip(prefix), tree.Tokens[child]))
				}
			}
		}
	}
	below(Root, text)
	return tree
}

// path returns the tokens from Root to a node.
func (t *Tree) path(node int) (path []int32) {
	for ; node != Root; node = t.Parents[node] {
		path = append(path, t.Tokens[node])
	}
	slices.Reverse(path)
	return path
}

// playTrees writes a text by trees.
func playTrees(s shape, replacement bool, deep *bool) func(g *game, c chance) []int32 {
	return func(g *game, c chance) []int32 {
		c = g.numbers(c)
		var text []int32
		for round := 0; len(text) < g.tokens; round++ {
			depth := min(len(s), g.tokens-len(text)-1)
			if g.rounds > 0 && round >= g.rounds {
				depth = 0
			}
			*deep = depth == len(s)
			tree := s[:depth].grow(g, c, text, replacement)
			node, next, err := Root, int32(0), error(nil)
			if len(tree.Tokens) == 0 {
				next, err = (&tableTarget{c: c, p: g.p, cache: text, pos: len(text)}).Pick(0)
			} else {
				target := make([]sampler.Dist, len(tree.Tokens)+1)
				for i := range target {
					target[i] = *g.p(slices.Concat(text, tree.path(i-1)))
				}
				v := Verifier{chance: c}
				node, next, err = v.Traverse(target, tree, sampler.Draw{Pos: len(text)})
			}
			if err != nil {
				panic(err)
			}
			if round == 0 {
				g.first = len(tree.path(node))
			}
			text = append(append(text, tree.path(node)...), next)
		}
		return text
	}
}

func TestTraversalKeepsTheDistribution(t *testing.T) {
	t.Parallel()
	var deep bool
	for _, replacement := range []bool{true, false} {
		for _, test := range []struct {
			shape                         shape
			vocab, tokens, rounds, tables int
		}{
			{shape{2}, 4, 2, 1, 30}, {shape{3}, 4, 2, 1, 20}, {shape{4}, 3, 2, 1, 10}, {shape{2, 1}, 3, 3, 1, 30}, {shape{2, 2}, 3, 3, 1, 8}, {shape{1, 2}, 3, 3, 1, 20},
			{shape{1, 1}, 3, 3, 0, 8}, {shape{2, 1}, 2, 4, 0, 6}, {shape{2}, 3, 3, 0, 10},
		} {
			for seed := range uint64(max(1, draws(test.tables))) {
				g := game{
					p: chained(drawing, randomLogits(2*seed, test.vocab, 1.5)), q: chained(drawing, randomLogits(2*seed+1, test.vocab, 1.5)),
					tokens: test.tokens, rounds: test.rounds, play: playTrees(test.shape, replacement, &deep),
				}
				assert.Less(t, g.distance(t), exact, "replacement %v %+v table %d", replacement, test, seed)
			}
		}
	}
	for _, g := range []game{
		{p: table(.3, .7, 0, 0), q: table(0, 0, .4, .6)}, // disjoint
		{p: table(.3, .3, .4), q: table(.3, .3, .4)},     // equal
		{p: table(1, 0), q: table(0, 1)},
	} {
		for _, replacement := range []bool{true, false} {
			g.tokens, g.play = 3, playTrees(shape{2, 1}, replacement, &deep)
			assert.Less(t, g.distance(t), exact)
		}
	}
}

// The worth of more children, by hand for p (.6, .4) and q (.3, .7). One child:
// .3 + .4 stand. Two without replacement are both tokens: one of them always
// stands. Two with replacement: the first fails with 1-.7, and only as token 1;
// p is then all of token 0, of which q has .3: .7 + .3*.3.
func TestTraversalAcceptance(t *testing.T) {
	var deep bool
	for _, test := range []struct {
		shape       shape
		replacement bool
		want        float64
	}{{shape{1}, false, .7}, {shape{2}, true, .79}, {shape{2}, false, 1}} {
		g := game{p: table(.6, .4), q: table(.3, .7), tokens: 2, play: playTrees(test.shape, test.replacement, &deep)}
		assert.Less(t, g.distance(t), exact)
		assert.InDelta(t, test.want, g.stood, 1e-7)
	}
}

// The numbers of a tree belong to its round, like those of a block.
func TestNumbersOfATreeUsedAgain(t *testing.T) {
	var deep bool
	place := func(node int) (depth, branch int) { // in a tree of shape{2, 1}
		if deep {
			return node % 2, node / 2
		}
		return 0, node
	}
	again := func(stream sampler.Stream, first int) func(key) key {
		return func(k key) key {
			if k.at.Stream != stream || int(k.n) < first {
				return k
			}
			depth, branch := place(int(k.n) - first)
			return key{sampler.Draw{Pos: k.at.Pos + depth, Stream: stream}, int32(branch)}
		}
	}
	for name, rekey := range map[string]func(key) key{
		"drafts": again(sampler.StreamDraft, 0),
		"tests":  again(sampler.StreamAccept, 1),
	} {
		worst := 0.0
		for seed := range uint64(10) {
			g := game{
				p: chained(drawing, randomLogits(2*seed, 2, 1)), q: chained(drawing, randomLogits(2*seed+1, 2, 1)),
				tokens: 4, play: playTrees(shape{2, 1}, true, &deep), rekey: rekey,
			}
			worst = max(worst, g.distance(t))
		}
		assert.Greater(t, worst, .005, name)
	}
}

// For a tree of one branch traversal decides as the block rule does.
func TestTraversalOfOneBranchIsBlock(t *testing.T) {
	stood := [4]int{}
	for seed := range uint64(3000) {
		p, q := chained(drawing, randomLogits(seed%50, 6, 1)), chained(drawing, randomLogits(seed%50+50, 6, 1))
		at := sampler.Draw{Seed: seed, Pos: 4}
		var tree Tree
		var d Draft
		target := []sampler.Dist{*p(nil)}
		for range 3 {
			node := tree.Draw(len(tree.Tokens)-1, q(d.Tokens), seed, at.Pos)
			d.Dists = append(d.Dists, *q(d.Tokens))
			d.Tokens = append(d.Tokens, tree.Tokens[node])
			target = append(target, *p(d.Tokens))
		}
		var v Verifier
		k, next, err := v.Verify(Block, &tableTarget{c: noise{}, p: p, draft: d.Tokens}, d, at)
		require.NoError(t, err)
		node, other, err := v.Traverse(target, &tree, at)
		require.NoError(t, err)
		require.Equal(t, k, node+1)
		if k < 3 {
			require.Equal(t, next, other)
		}
		stood[k]++
	}
	for k, n := range stood {
		assert.Greater(t, n, 20, "%d stand", k)
	}
}

// A drafted tree draws with the same numbers as a drafted text.
func TestTreeDrawsAsRules(t *testing.T) {
	s, err := sampler.New(drawing)
	require.NoError(t, err)
	logits := randomLogits(3, 20, 1)
	for seed := range uint64(200) {
		var q sampler.Dist
		prefix := []int32{1, 2, 3}
		var tree Tree
		node := Root
		for range 3 {
			x, err := Token.Draw(&q, s, logits(prefix), prefix, seed, 3)
			require.NoError(t, err)
			node = tree.Draw(node, &q, seed, 3)
			require.Equal(t, x, tree.Tokens[node])
			prefix = append(prefix, x)
		}
	}
}

// A tree of the most likely tokens of q keeps the distribution, and gets as far
// as their probability under p.
func TestWalk(t *testing.T) {
	g := game{p: table(.1, .2, .3, .4), q: table(.4, .3, .2, .1), tokens: 3, play: func(g *game, c chance) []int32 {
		var tree Tree
		for i := range 2 {
			child := tree.Add(Root, g.q(nil).Token(i))
			for j := range 2 {
				tree.Add(child, g.q(nil).Token(j))
			}
		}
		node, next, err := Walk(&tree, func(node int) (int32, error) {
			path := tree.path(node)
			return (&tableTarget{c: c, p: g.p, cache: path, pos: len(path)}).Pick(0)
		})
		if err != nil {
			panic(err)
		}
		text := append(tree.path(node), next)
		g.first = len(text) - 1
		for len(text) < g.tokens {
			x, _ := (&tableTarget{c: c, p: g.p, cache: text, pos: len(text)}).Pick(0)
			text = append(text, x)
		}
		return text
	}}
	assert.Less(t, g.distance(t), exact)
	assert.InDelta(t, .3+.3*.3, g.stood, 1e-7) // tokens 0 and 1

	var tree Tree
	first := tree.Add(Root, 5)
	tree.Add(first, 6)
	asked := []int{}
	node, _, err := Walk(&tree, func(node int) (int32, error) {
		asked = append(asked, node)
		if node == first {
			return 0, errBoom
		}
		return 5, nil
	})
	assert.ErrorIs(t, err, errBoom)
	assert.Equal(t, first, node)
	assert.Equal(t, []int{Root, first}, asked)
}

// Root -> 0 -> 2, 3; Root -> 1 -> 4 -> 5, 6.
func TestLayout(t *testing.T) {
	tree := Tree{Tokens: make([]int32, 7), Parents: []int{Root, Root, 0, 0, 1, 4, 4}}
	places, err := tree.Layout(nil)
	require.NoError(t, err)
	assert.Equal(t, []Place{{0, 0, 2}, {0, 2, 4}, {1, 0, 1}, {1, 1, 2}, {1, 2, 4}, {2, 2, 3}, {2, 3, 4}}, places)
	places, err = (&Tree{}).Layout(places)
	assert.NoError(t, err)
	assert.Empty(t, places)
}

func TestBadTrees(t *testing.T) {
	d := *dist(.5, .5)
	two := []sampler.Dist{d, d}
	for _, test := range []struct {
		tree   Tree
		target []sampler.Dist
		want   string
	}{
		{Tree{Tokens: []int32{1}}, two, "speculative: a tree of 1 tokens has 0 parents, want one for each"},
		{Tree{Tokens: []int32{1}, Parents: []int{0}}, two, "speculative: the parent of node 0 of a tree is 0, want an earlier node or Root"},
		{Tree{Tokens: []int32{1}, Parents: []int{-2}}, two, "speculative: the parent of node 0 of a tree is -2, want an earlier node or Root"},
		{Tree{Tokens: []int32{1}, Parents: []int{Root}, Dists: []sampler.Dist{d}}, two, "speculative: a tree of 1 tokens has 1 distributions, want none, or one more than tokens"},
		{Tree{Tokens: []int32{1}, Parents: []int{Root}, Dists: two}, two[:1], "speculative: a tree of 1 tokens has 1 distributions of the target, want one more than tokens"},
		{Tree{Tokens: []int32{1}, Parents: []int{Root}, Dists: two}, []sampler.Dist{d, {}}, "speculative: the target's distribution behind node 0 of a tree is empty"},
		{Tree{Tokens: []int32{1}, Parents: []int{Root}}, two, "speculative: a tree of certain proposals is no draw; Walk follows it"},
		{Tree{Tokens: []int32{2}, Parents: []int{Root}, Dists: two}, two, "speculative: node 0 of a tree is token 2, which the distribution of its parent does not list"},
		{Tree{Tokens: []int32{1, 1}, Parents: []int{Root, Root}, Dists: []sampler.Dist{d, d, d}}, []sampler.Dist{d, d, d}, "speculative: nodes 0 and 1 of a tree are both token 1, drawn without replacement"},
	} {
		var v Verifier
		_, _, err := v.Traverse(test.target, &test.tree, sampler.Draw{})
		assert.EqualError(t, err, test.want)
	}
	_, err := (&Tree{Tokens: []int32{1}}).Layout(nil)
	assert.Error(t, err)
	_, _, err = Walk(&Tree{Tokens: []int32{1}}, nil)
	assert.Error(t, err)
	var empty Tree
	assert.Equal(t, Root, empty.Draw(Root, &sampler.Dist{}, 1, 1), "nothing to draw")
}

func TestTraversalDoesNotAllocate(t *testing.T) {
	p, q := *dist(.4, .3, .2, .1), *dist(.1, .2, .3, .4)
	tree := Tree{Replacement: true}
	for range 2 {
		child := tree.Draw(Root, &q, 1, 0)
		for range 2 {
			tree.Draw(child, &q, 1, 0)
		}
	}
	target := []sampler.Dist{p, p, p, p, p, p, p}
	var v Verifier
	seed := uint64(0)
	round := func() {
		_, _, err := v.Traverse(target, &tree, sampler.Draw{Seed: seed})
		require.NoError(t, err)
		seed++
	}
	for range 50 {
		round()
	}
	assert.Zero(t, testing.AllocsPerRun(100, round))
}

// A treeTarget answers for a draft that is a tree, and fails at some places.
type treeTarget struct {
	p    language
	d    Draft
	lost func(prefix []int32) bool
}

func (t treeTarget) Dist(dst *sampler.Dist, i int) error {
	prefix := t.d.AppendPath(nil, i)
	if t.lost(prefix) {
		return errBoom
	}
	*dst = *t.p(prefix)
	return nil
}

func (t treeTarget) Pick(int) (int32, error) { panic("a tree of draws is judged by distributions") }

// Verify judges a tree of draws so that the text has the distribution of the
// target, also up to where the target fails: behind some of the first tokens,
// or some pairs.
func TestTreeDraftsBesideErrors(t *testing.T) {
	t.Parallel()
	p, q := chained(drawing, randomLogits(1, 3, 1)), chained(drawing, randomLogits(2, 3, 1))
	for name, lost := range map[string]func(prefix []int32) bool{
		"never": func([]int32) bool { return false },
		"pairs": func(prefix []int32) bool { return len(prefix) == 2 && (prefix[0]+prefix[1])%2 == 0 },
		"first": func(prefix []int32) bool { return len(prefix) == 1 && prefix[0] == 1 },
	} {
		pairsFollow(t, p, name, func(e *enumerator) []int32 {
			d := shape{2, 1, 1}.grow(&game{q: q}, e, nil, false).draft()
			place, next, err := production(Block)(e, treeTarget{p, d, lost}, d, sampler.Draw{})
			text := d.AppendPath(nil, place)
			if err != nil {
				require.ErrorIs(t, err, errBoom)
				return text
			}
			return append(text, next)
		})
	}
}

// What a draft says of itself, by hand: 0 - 2 - 4, 0 - 3, 1 - 5.
func TestDraftsAsTrees(t *testing.T) {
	d := Draft{Tokens: []int32{10, 11, 12, 13, 14, 15}, Parents: []int{Root, Root, 0, 0, 2, 1}}
	for _, test := range []struct {
		tokens   []int32
		n, place int
	}{{nil, 0, 0}, {[]int32{12}, 0, 0}, {[]int32{10, 12, 14, 9}, 3, 5}, {[]int32{10, 13, 14}, 2, 4}, {[]int32{11, 15}, 2, 6}} {
		n, place := d.Follow(test.tokens)
		assert.Equal(t, [2]int{test.n, test.place}, [2]int{n, place}, "%v", test.tokens)
		assert.ElementsMatch(t, test.tokens[:n], d.AppendPath(nil, place), "%v", test.tokens)
	}
	assert.Equal(t, 3, d.leaves())
	assert.Equal(t, 3, d.depth())
	for _, test := range []struct{ n, branches, want int }{{6, 2, 6}, {9, 9, 6}, {4, 2, 4}, {6, 1, 3}, {6, 0, 1}, {3, 1, 3}} {
		cut, err := d.fit(test.n, test.branches)
		require.NoError(t, err)
		assert.Equal(t, d.Tokens[:test.want], cut.Tokens, "%+v", test)
	}
	_, err := Draft{Tokens: []int32{1, 1}, Parents: []int{Root, Root}}.fit(2, 2)
	assert.EqualError(t, err, "speculative: node 1 of a tree is token 1, as another child of its parent is")
	assert.Equal(t, [2]int{2, 2}, func() [2]int { n, p := Draft{Tokens: []int32{1, 2, 3}}.Follow([]int32{1, 2, 4}); return [2]int{n, p} }())
}
