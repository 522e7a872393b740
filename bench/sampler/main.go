// Command sampler measures package sampler beside llama.cpp's own samplers: the
// same chains on the same rows, in turn, from the row of logits to the token.
// It prints medians and how many times faster sortes is.
//
//	go run ./bench/sampler -models models/a.gguf,models/b.gguf
//	go run -tags purego ./bench/sampler
//
// The rows are made up, or recorded from the models. With the build tag purego
// the kernels in assembly are left out. make bench-sampler runs both.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/bench/internal/measure"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

func main() {
	models := flag.String("models", "", "GGUF files to record rows from, separated by commas")
	rounds := flag.Int("rounds", 5, "measurements of each side")
	only := flag.String("only", "", "measure only the chains whose name contains this")
	sizes := flag.String("sizes", "32000,49152,128256,151936,262144", "sizes of the made-up rows")
	flag.Parse()

	fmt.Printf("%s, medians of %d, both sides in turn; kernels: %s\n", time.Now().Format("2006-01-02"), *rounds, sampler.Kernels())
	var sets []rowSet
	for size := range strings.SplitSeq(*sizes, ",") {
		var n int
		if _, err := fmt.Sscan(size, &n); err != nil {
			fmt.Fprintf(os.Stderr, "size %q: %v\n", size, err)
			os.Exit(1)
		}
		sets = append(sets, flat(n), peaked(n))
	}
	for path := range strings.SplitSeq(*models, ",") {
		if path == "" {
			continue
		}
		set, err := record(path)
		if err != nil {
			fmt.Printf("no rows of %s: %v\n", path, err)
			continue
		}
		sets = append(sets, set)
	}
	for _, c := range chains() {
		if !strings.Contains(c.name, *only) {
			continue
		}
		aim := c.asmAim
		if sampler.Kernels() == "Go" {
			aim = c.goAim
		}
		fmt.Printf("\n%s", c.name)
		if aim > 0 {
			fmt.Printf("; aim at 128256 tokens and more: %g times", aim)
		}
		fmt.Println()
		for _, set := range sets {
			m, err := run(c, set, *rounds)
			if err != nil {
				fmt.Printf("  %-34s %v\n", set.name, err)
				continue
			}
			fmt.Printf("  %-34s %s\n", set.name, m)
		}
	}
}

// A measurement is the time of one token on both sides, round by round.
type measurement struct {
	ours, theirs []float64 // microseconds
	bytes        float64   // allocated for one token of ours
}

func (m measurement) String() string {
	ratios := make([]float64, len(m.ours))
	for i := range ratios {
		ratios[i] = m.theirs[i] / m.ours[i]
	}
	return fmt.Sprintf("ours %9.1f us %4.0f B/op, theirs %9.1f us: %6.2f times faster (%.2f to %.2f)",
		measure.Median(m.ours), m.bytes, measure.Median(m.theirs), measure.Median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// run runs a chain on both sides in turn.
func run(c chain, set rowSet, rounds int) (m measurement, err error) {
	vocabulary := len(set.rows[0])
	ours, err := sampler.New(c.config)
	if err != nil {
		return m, err
	}
	theirs, err := llama.NewNativeSampler(vocabulary, c.native...)
	if err != nil {
		return m, err
	}
	defer theirs.Close()
	history := make([]int32, 0, 1<<20)
	for _, token := range someText(c.history, vocabulary) {
		history = append(history, token)
		if err := theirs.Accept(token); err != nil {
			return m, err
		}
	}
	pick := func(i int) error {
		token, err := ours.Pick(set.rows[i%len(set.rows)], history, sampler.Draw{Seed: seed, Pos: len(history)})
		ours.Accept(token)
		history = append(history, token)
		return err
	}
	sample := func(i int) error {
		_, err := theirs.Sample(set.rows[i%len(set.rows)])
		return err
	}

	// A turn to warm up; it is at least once over the rows, and a while.
	const turn = 20 * time.Millisecond
	if _, err = timed(len(set.rows), turn, pick); err != nil {
		return m, err
	}
	if _, err = timed(len(set.rows), 0, sample); err != nil {
		return m, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err = timed(len(set.rows), 0, pick); err != nil {
		return m, err
	}
	runtime.ReadMemStats(&after)
	m.bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(len(set.rows))

	for round := range rounds {
		sides := []struct {
			run func(int) error
			to  *[]float64
		}{{pick, &m.ours}, {sample, &m.theirs}}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			perToken, err := timed(len(set.rows), turn, s.run)
			if err != nil {
				return m, err
			}
			*s.to = append(*s.to, perToken)
		}
	}
	return m, nil
}

// timed runs f a number of times, and again until the time is over. It returns
// the microseconds of one run.
func timed(least int, atLeast time.Duration, f func(i int) error) (each float64, err error) {
	start := time.Now()
	n := 0
	for ; n < least || time.Since(start) < atLeast; n++ {
		if err := f(n); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(n), nil
}
