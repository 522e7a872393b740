package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/schollz/progressbar/v3"

	"github.com/sortes-llm/sortes/llama"
)

// open loads the model that a flag names, with a progress bar where standard
// error is a terminal.
func (a *app) open(flag, path string, o llama.ModelOptions) (*llama.Model, error) {
	slog.New(a.log).Debug("loading", "model", path)
	if isTerminal(a.stderr) {
		const steps = 1000
		bar := a.newBar(steps, "loading "+filepath.Base(path), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
		o.Progress = func(part float32) { _ = bar.Set(int(part * steps)) }
		defer func() { _ = bar.Finish() }()
	}
	m, err := llama.Open(a.ctx, path, o)
	// Checking the file took memory, about that of its vocabulary several times
	// over, which the runtime would keep.
	debug.FreeOSMemory()
	switch {
	case err == nil || a.ctx.Err() != nil:
		return m, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: check the path after %s", err, flag)
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return nil, fmt.Errorf("%w: name the file in it", err)
	}
	return nil, fmt.Errorf("%w (gen inspect shows what can be read of a file)", err)
}

// newBar makes a progress bar on standard error, which is a terminal.
func (a *app) newBar(steps int, what string, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions(steps, append(more,
		progressbar.OptionSetWriter(a.stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish())...)
}
