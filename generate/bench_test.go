package generate

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
)

// instant is an evaluator that takes no time.
type instant struct {
	limits eval.Limits
	length []int
	row    []float32
}

func newInstant(sequences int) *instant {
	m := &instant{
		limits: eval.Limits{Vocab: len(tablemodel.Pieces), Sequences: sequences, Context: 1 << 30, Batch: 1024, Outputs: 1024},
		length: make([]int, sequences),
		row:    make([]float32, len(tablemodel.Pieces)),
	}
	m.row[tablemodel.Text] = 1
	return m
}

func (m *instant) Eval(_ context.Context, rows []eval.Row) error {
	for _, r := range rows {
		m.length[r.Seq]++
	}
	return nil
}

func (m *instant) Limits() eval.Limits                       { return m.limits }
func (m *instant) Logits(int) []float32                      { return m.row }
func (m *instant) Len(seq int) int                           { return m.length[seq] }
func (m *instant) Truncate(seq, n int) error                 { m.length[seq] = n; return nil }
func (m *instant) Copy(dst, src int) error                   { return nil }
func (m *instant) Probe(context.Context) (eval.Noise, error) { return eval.Noise{}, nil }

// BenchmarkToken is what the loop costs for each token, its way to the reader
// included: all but the evaluation.
func BenchmarkToken(b *testing.B) {
	for _, sequences := range []int{1, 8} {
		for _, stop := range [][]string{nil, {"\nUser:", "</s>", "###"}} {
			b.Run(fmt.Sprintf("sequences=%d/stops=%d", sequences, len(stop)), func(b *testing.B) {
				e, err := New(newInstant(sequences), tablemodel.Words(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				b.ReportAllocs()
				var group sync.WaitGroup
				for range sequences {
					group.Go(func() {
						for _, err := range e.Stream(context.Background(), Request{Prompt: bos(), MaxTokens: max(1, b.N/sequences), Stop: stop}) {
							if err != nil {
								b.Error(err)
							}
						}
					})
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
