// Command bench measures sortes beside llama.cpp's own tools, on the same
// machine, models and threads, one after the other in turn, and prints medians
// and ratios. It fails nothing: it reports.
//
//	go run ./bench -models models/a.gguf,models/b.gguf
//
// make bench builds what it needs and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/bench/internal/measure"
	"github.com/sortes-llm/sortes/llama"
)

func main() {
	models := flag.String("models", "", "GGUF files, separated by commas")
	tools := flag.String("tools", "third_party/tools", "where build.sh put llama.cpp's programs")
	gen := flag.String("gen", "bin/gen", "the gen to measure")
	rounds := flag.Int("rounds", 5, "measurements of each side")
	threads := flag.Int("threads", llama.DefaultThreads(), "compute threads of each side")
	only := flag.String("only", "", "measures to take, of bench, upstream, whole, cancel; empty means all")
	flag.Parse()

	b := bench{
		ours:     filepath.Join(*tools, "ours", "bin"),
		upstream: filepath.Join(*tools, "upstream", "bin"),
		gen:      *gen,
		rounds:   *rounds,
		threads:  *threads,
	}
	fmt.Printf("%s; %s; %d threads; medians of %d, both sides in turn\n", measure.CPU(), time.Now().Format("2006-01-02"), *threads, *rounds)
	v := llama.Versions()
	fmt.Printf("llama.cpp %s, compiled for %s\n", v.LlamaCPP, strings.Join(v.Compiled, " "))
	wanted := func(name string) bool { return *only == "" || strings.Contains(","+*only+",", ","+name+",") }
	// As gen does: the runtime's threads that look for work take a core from
	// the compute threads.
	runtime.GOMAXPROCS(1)
	files := strings.Split(*models, ",")
	if wanted("whole") {
		// First, while this process is small: the kernel counts what it used
		// before as peak memory of the processes that it starts.
		for _, model := range files {
			fmt.Printf("\n%s, whole processes\n", filepath.Base(model))
			report(b.besideCompletion(model))
		}
	}
	for _, model := range files {
		fmt.Printf("\n%s\n", filepath.Base(model))
		if wanted("bench") {
			report(b.besideBench(model, b.ours, "llama-bench, our flags"))
		}
		if wanted("upstream") {
			report(b.besideBench(model, b.upstream, "llama-bench, upstream's flags"))
		}
		if wanted("cancel") {
			report(b.cancel(context.Background(), model))
		}
	}
}

func report(err error) {
	if err != nil {
		fmt.Printf("  not measured: %v\n", err)
	}
}
