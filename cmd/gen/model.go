package main

import (
	"context"
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

// open loads a model, with a progress bar where standard error is a terminal.
func (a *app) open(path string, o llama.ModelOptions) (*llama.Model, error) {
	slog.New(a.log).Debug("loading", "model", path)
	if isTerminal(a.stderr) {
		const steps = 1000
		bar := progressbar.NewOptions(steps,
			progressbar.OptionSetWriter(a.stderr),
			progressbar.OptionSetDescription("loading "+filepath.Base(path)),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionClearOnFinish())
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
		return nil, fmt.Errorf("%w: check the path after -m", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return nil, fmt.Errorf("%w: name the file in it", err)
	}
	return nil, fmt.Errorf("%w (gen inspect shows what can be read of a file)", err)
}

// newSession makes the session of one text with its adapters, and returns what
// closes both.
func newSession(ctx context.Context, m *llama.Model, o *options) (s *llama.Session, closeAll func(), err error) {
	var adapters []llama.AdapterScale
	closeAll = func() {
		if s != nil {
			s.Close()
		}
		for _, a := range adapters {
			a.Adapter.Close()
		}
	}
	for _, l := range o.loras {
		adapter, err := m.LoadAdapter(l.file)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		adapters = append(adapters, llama.AdapterScale{Adapter: adapter, Scale: l.scale})
	}
	if s, err = m.NewSessionContext(ctx, o.session); err == nil && len(adapters) > 0 {
		err = s.SetAdapters(adapters...)
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return s, closeAll, nil
}
