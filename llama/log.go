package llama

// #include "shim.h"
import "C"

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// SetLogger says where llama.cpp's log goes and from which level on; nil means
// slog.Default. Without a call it is slog.Default from slog.LevelWarn on. It is
// global, as llama.cpp's own log is, and safe for concurrent use.
//
// llama.cpp writes to it from inside native calls: the handler must not call
// back into this package.
func SetLogger(l *slog.Logger, level slog.Level) {
	logger.Store(l)
	switch {
	case level <= slog.LevelDebug:
		C.srt_log_level(C.GGML_LOG_LEVEL_DEBUG)
	case level <= slog.LevelInfo:
		C.srt_log_level(C.GGML_LOG_LEVEL_INFO)
	case level <= slog.LevelWarn:
		C.srt_log_level(C.GGML_LOG_LEVEL_WARN)
	default:
		C.srt_log_level(C.GGML_LOG_LEVEL_ERROR)
	}
}

var logger atomic.Pointer[slog.Logger]

// Lines come in fragments, on whatever thread is in the native call; a line is
// handed on once it is whole. Fragments of two threads may mix, as they do in
// llama.cpp's own log.
var line struct {
	sync.Mutex
	text strings.Builder
}

//export sortesLog
func sortesLog(level C.int32_t, text *C.char) {
	fragment := C.GoString(text)
	line.Lock()
	line.text.WriteString(fragment)
	if !strings.HasSuffix(fragment, "\n") {
		line.Unlock()
		return
	}
	whole := strings.TrimSpace(line.text.String())
	line.text.Reset()
	line.Unlock()
	if whole == "" {
		return
	}
	l := logger.Load()
	if l == nil {
		l = slog.Default()
	}
	l.Log(context.Background(), slogLevel(level), whole, "from", "llama.cpp")
}

func slogLevel(level C.int32_t) slog.Level {
	switch level {
	case C.GGML_LOG_LEVEL_DEBUG:
		return slog.LevelDebug
	case C.GGML_LOG_LEVEL_WARN:
		return slog.LevelWarn
	case C.GGML_LOG_LEVEL_ERROR:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
