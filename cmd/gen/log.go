package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/sortes-llm/sortes/llama"
)

// Thresholds of -lv.
const (
	logErrors   = 1
	logWarnings = 2
	logInfo     = 3
	logDebug    = 4 // and above
)

// A logHandler writes a short line for each record. It implements slog.Handler.
//
// Lines of llama.cpp are held until what it is doing has ended: an error of
// ours says the same again, and an interruption is no reason for warnings.
type logHandler struct {
	mu      sync.Mutex
	out     io.Writer
	file    *os.File
	level   slog.Level
	verbose bool // nothing is held
	held    []string
}

func newLogHandler(out io.Writer) *logHandler {
	h := &logHandler{out: out, level: slog.LevelWarn}
	llama.SetLogger(slog.New(h), h.level)
	return h
}

// configure applies -lv, --log-file and --log-disable.
func (h *logHandler) configure(o *options) error {
	switch {
	case o.logDisable || o.verbosity < logErrors:
		h.level = slog.LevelError + 1
	case o.verbosity == logErrors:
		h.level = slog.LevelError
	case o.verbosity == logWarnings:
		h.level = slog.LevelWarn
	case o.verbosity == logInfo:
		h.level = slog.LevelInfo
	default:
		h.level = slog.LevelDebug
	}
	h.verbose = h.level < slog.LevelWarn
	llama.SetLogger(slog.New(h), h.level)
	if o.logFile == "" || o.logDisable {
		return nil
	}
	file, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("log file %s: %w", o.logFile, errors.Unwrap(err))
	}
	h.file = file
	return nil
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	from, attrs := "gen", ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "from" {
			from = a.Value.String()
		} else {
			attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	level := map[slog.Level]string{slog.LevelError: "error", slog.LevelWarn: "warning", slog.LevelInfo: "info", slog.LevelDebug: "debug"}[r.Level]
	message := r.Message
	if from != "gen" { // llama.cpp begins some lines with the level, too
		if word, rest, _ := strings.Cut(message, ": "); strings.EqualFold(word, level) {
			message = rest
		}
	}
	line := fmt.Sprintf("%s: %s: %s%s\n", from, level, message, attrs)

	h.mu.Lock()
	defer h.mu.Unlock()
	if from != "gen" && !h.verbose {
		h.held = append(h.held, line)
		return nil
	}
	h.write(line)
	return nil
}

func (h *logHandler) write(line string) {
	_, _ = io.WriteString(h.out, line)
	if h.file != nil {
		_, _ = h.file.WriteString(line)
	}
}

// settle writes the lines held, without those that err says too.
func (h *logHandler) settle(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := ""
	if err != nil {
		said = err.Error()
	}
	for _, line := range h.held {
		if _, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); !strings.Contains(said, text[strings.Index(text, " ")+1:]) {
			h.write(line)
		}
	}
	h.held = nil
}

// drop forgets the lines held.
func (h *logHandler) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = nil
}

func (h *logHandler) close() {
	h.settle(nil)
	if h.file != nil {
		h.file.Close()
	}
}

// The records of this program are flat.
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *logHandler) WithGroup(string) slog.Handler      { return h }

// describe is an error as the user reads it: one line, without the names of
// packages.
func describe(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	for _, pkg := range []string{"llama: ", "generate: ", "sampler: ", "speculative: ", "gguf: "} {
		text = strings.TrimPrefix(strings.ReplaceAll(text, ": "+pkg, ": "), pkg)
	}
	return text
}
