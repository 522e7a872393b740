package main

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sortes-llm/sortes/llama"
)

// quantizeCommand makes gen quantize, with the flags of llama-quantize.
func (a *app) quantizeCommand() *cli.Command {
	var p parser
	var o llama.QuantizeOptions
	threads := -1
	p.settings = []*setting{
		{names: "--allow-requantize", group: "flags", value: switchValue(&o.AllowRequantize, true), usage: "take weights that are quantised already, at a loss"},
		{names: "--pure", group: "flags", value: switchValue(&o.Pure, true), usage: "one type for all matrices, without the mixtures that keep some larger"},
		{names: "--leave-output-tensor", group: "flags", value: switchValue(&o.KeepOutput, true), usage: "leave output.weight as it is"},
		{names: "--prune-layers", arg: "N,...", group: "flags", value: listValue(&o.PruneLayers, parseLayers, strconv.Itoa), usage: "leave out these layers, counted from 0"},
		{names: "-t, --threads", arg: "N", env: "LLAMA_ARG_THREADS", group: "flags", value: threadsValue(&threads), usage: "threads; -1 = one a processor"},
	}
	return subcommand("quantize", "write a model with its weights in another type: "+strings.Join(llama.FileTypes(), ", "), "IN OUT TYPE", &p, a, func(c *cli.Context) error {
		if c.NArg() != 3 {
			return badUsage("quantize: want IN OUT TYPE, got %d arguments", c.NArg())
		}
		in, out, fileType := c.Args().Get(0), c.Args().Get(1), c.Args().Get(2)
		if !slices.Contains(llama.FileTypes(), strings.ToUpper(fileType)) {
			return badUsage("quantize to %s: want one of %s", fileType, strings.Join(llama.FileTypes(), ", "))
		}
		o.Threads = max(threads, 0)
		return a.quantize(in, out, fileType, o)
	})
}

// quantize writes a model with its weights in another type, interrupted by the
// app's context.
func (a *app) quantize(in, out, fileType string, o llama.QuantizeOptions) error {
	slog.New(a.log).Debug("quantizing", "model", in)
	return llama.Quantize(a.ctx, in, out, fileType, o)
}

func parseLayers(text string) ([]int, error) {
	var layers []int
	for item := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(item))
		if err != nil || n < 0 || n > math.MaxInt16 {
			return nil, fmt.Errorf("want numbers of layers, from 0, separated by commas")
		}
		layers = append(layers, n)
	}
	return layers, nil
}
