package llama

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resident is the memory of this process, in pages.
func resident(t *testing.T) float64 {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(t, err)
	return float64(pages)
}

func osThreads(t *testing.T) int {
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(tasks)
}

func TestLoadAndCloseLeaveNothing(t *testing.T) {
	realModel(t) // open meanwhile
	// One OS thread, for every one has an arena of its own in malloc; and the
	// least of some rounds, for malloc keeps a freed block now and then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rounds := func(n int) (memory float64, threads int) {
		memory = math.Inf(1)
		for i := range n {
			m, err := Open(context.Background(), realPath, ModelOptions{})
			require.NoError(t, err)
			s, err := m.NewSession(SessionOptions{Context: 256, Batch: 64, Threads: 1, BatchThreads: 2})
			require.NoError(t, err)
			require.NoError(t, s.Eval(context.Background(), rowsOf(0, 10)))
			m.Vocab().Piece(10)
			s.Close()
			m.Close()
			if i >= n-10 {
				memory = min(memory, resident(t))
			}
		}
		return memory, osThreads(t)
	}
	memory, threads := rounds(20)
	after, threadsAfter := rounds(50)
	t.Logf("%.0f pages, then %.0f", memory, after)
	require.InEpsilon(t, memory, after, 0.03)
	require.LessOrEqual(t, threadsAfter, threads+1, "the runtime of Go may have started one")
}

// used is the processor time that this process takes while d passes.
func used(t *testing.T, d time.Duration) time.Duration {
	now := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := now()
	time.Sleep(d)
	return now() - before
}

func TestIdleSessionUsesNoProcessor(t *testing.T) {
	const while, little = 300 * time.Millisecond, 15 * time.Millisecond
	runtime.GC()
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Threads: 4})
	require.Less(t, used(t, while), little, "before the first Eval")
	for range 3 {
		evaluate(t, s, rowsOf(0, 10, 11)...)
		s.Idle()
		require.Less(t, used(t, while), little, "after Idle")
	}
	// Without Idle the threads poll for a while, and then sleep.
	evaluate(t, s, rowsOf(0, 12)...)
	require.Eventually(t, func() bool { return used(t, while) < little }, 20*time.Second, time.Millisecond)
	evaluate(t, s, rowsOf(0, 13)...)
	s.Idle()
	s.Idle()
	evaluate(t, s, rowsOf(0, 14)...)
}
