package llama

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPool(t *testing.T) {
	p, err := NewPool(3)
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, 3, p.Threads())
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Pool: p})
	evaluate(t, s, rowsOf(0, 10, 11)...)
	require.Equal(t, "llama: thread pool closed before its sessions", panicText(p.Close))
	evaluate(t, s, rowsOf(0, 12)...)
	s.Close()
	p.Close()
	p.Close()
	require.Equal(t, "llama: thread pool is closed", panicText(func() { _, _ = tinyModel(t, "llama").NewSession(SessionOptions{Pool: p}) }))
}

func TestPoolSizes(t *testing.T) {
	for _, n := range []int{-1, 513, 1 << 40} {
		_, err := NewPool(n)
		require.EqualError(t, err, fmt.Sprintf("llama: %d threads: want 1 to 512, or 0 for one a core", n))
	}
	p, err := NewPool(0)
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, DefaultThreads(), p.Threads())
	require.Positive(t, DefaultThreads())
	require.LessOrEqual(t, DefaultThreads(), runtime.GOMAXPROCS(0))

	// A program may give Go one processor; the compute threads are not Go's.
	before := DefaultThreads()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	require.Equal(t, before, DefaultThreads())
}

func TestPhysicalCores(t *testing.T) {
	for _, c := range []struct {
		name     string
		siblings []string
		usable   int
		want     int
	}{
		{"no threads", []string{"0", "1", "2", "3"}, 4, 4},
		{"two threads a core", []string{"0,2", "1,3", "0,2", "1,3"}, 4, 2},
		{"two threads a core, as ranges", []string{"0-1", "0-1", "2-3", "2-3"}, 4, 2},
		{"half of them usable", []string{"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"}, 4, 2},
		{"an odd number usable", []string{"0,2", "1,3", "0,2", "1,3"}, 3, 2},
		{"one usable", []string{"0,2", "1,3", "0,2", "1,3"}, 1, 1},
		{"two kinds of cores", []string{"0-1", "0-1", "2-3", "2-3", "4", "5"}, 6, 4},
		{"one", []string{"0"}, 1, 1},
	} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "cpufreq"), 0o777))
		for i, list := range c.siblings {
			dir := filepath.Join(root, fmt.Sprintf("cpu%d", i), "topology")
			require.NoError(t, os.MkdirAll(dir, 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(list+"\n"), 0o666))
		}
		got, err := physicalCores(root, c.usable)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
	_, err := physicalCores(t.TempDir(), 4)
	require.Error(t, err)
}

// Two sessions that compute at the same time, on one pool or on two, give what
// each gives alone.
func TestSessionsOfTwoGoroutines(t *testing.T) {
	for _, name := range []string{"real", "tiny"} {
		m := tinyModel(t, "llama")
		steps := 40
		if name == "real" {
			m, steps = realModel(t), 8
		}
		run := func(s *Session, salt uint32) ([]float32, error) {
			tokens := someTokens(m, 70, salt)
			if err := s.Eval(context.Background(), quietRowsOf(0, tokens...)); err != nil {
				return nil, err
			}
			all := logits(s, len(tokens)-1)
			for range steps {
				best := int32(0)
				last := all[len(all)-m.vocab.size:]
				for id, x := range last {
					if x > last[best] {
						best = int32(id)
					}
				}
				if err := s.Eval(context.Background(), rowsOf(0, best)); err != nil {
					return nil, err
				}
				all = append(all, s.Logits(0)...)
			}
			return all, nil
		}
		for _, threads := range []int{1, 2} {
			var alone [2][]float32
			for i := range alone {
				s := newSession(t, m, SessionOptions{Context: 256, Threads: threads})
				var err error
				alone[i], err = run(s, uint32(i))
				require.NoError(t, err)
				s.Close()
			}
			require.NotEqual(t, alone[0], alone[1])
			o := SessionOptions{Context: 256, Threads: threads} // 1: a pool each
			if threads == 2 {
				pool, err := NewPool(2)
				require.NoError(t, err)
				defer pool.Close()
				o.Pool = pool
			}
			var together [2][]float32
			var errs [2]error
			sessions := [2]*Session{newSession(t, m, o), newSession(t, m, o)}
			done := make(chan bool)
			for i, s := range sessions {
				go func() {
					together[i], errs[i] = run(s, uint32(i))
					done <- true
				}()
			}
			<-done
			<-done
			for i, s := range sessions {
				require.NoError(t, errs[i])
				checkLengths(t, s, 70+steps)
				require.True(t, apart(alone[i], together[i]) == 0, "%s: session %d differs by %v", name, i, apart(alone[i], together[i]))
				s.Close()
			}
		}
	}
}
