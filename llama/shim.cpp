#include "shim.h"

// Written by build.sh; names the archive, so that Go's build cache, which looks
// at the files of this directory only, notices a new one.
#if __has_include("archive.h")
#  include "archive.h"
#endif
#if __has_include("sortes_archive.h")
#  include "sortes_archive.h"
#endif

#ifndef SORTES_PIN
#  define SORTES_PIN ""
#endif
#ifndef SORTES_STAMP
#  define SORTES_STAMP ""
#endif
#ifndef SORTES_CPU_FEATURES
#  define SORTES_CPU_FEATURES ""
#endif
#ifndef SORTES_COMPILER
#  define SORTES_COMPILER ""
#endif
#ifndef SORTES_BACKENDS
#  define SORTES_BACKENDS ""
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

// Implemented in log.go.
extern "C" void sortesLog(int32_t level, char * text);

namespace {

// ---- the fence -----------------------------------------------------------

// The fault of the fenced call that this thread is inside of, or null. ggml's
// worker threads never have one: an assertion there ends the process.
thread_local srt_fault * current = nullptr;

struct aborted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The flag of the llama_decode that this thread is in, so that workers may
// compute for it; null outside of one.
thread_local srt_flag * decoding = nullptr;

// ggml_abort calls this before abort(). Leaving by an exception unwinds ggml's
// C frames (build.sh compiles them with -fexceptions) to the fence.
void on_abort(const char * message) {
    if (current == nullptr) {
        std::fprintf(stderr, "llama.cpp: %s\n", message);
        return;
    }
    if (decoding != nullptr) {
        // The workers are still at their share of the operation and use memory
        // that unwinding takes away. In a moment they wait at a barrier, for good.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    throw aborted(message);
}

void put(char * dst, size_t size, const char * text) {
    std::snprintf(dst, size, "%s", text);
}

template <class F> void fence(srt_fault * fault, F call) {
    fault->kind       = SRT_OK;
    fault->message[0] = 0;
    fault->log[0]     = 0;
    current           = fault;
    try {
        call();
    } catch (const aborted & e) {
        fault->kind = SRT_ABORTED;
        put(fault->message, sizeof(fault->message), e.what());
    } catch (const std::exception & e) {
        fault->kind = SRT_EXCEPTION;
        put(fault->message, sizeof(fault->message), e.what());
    } catch (...) {
        fault->kind = SRT_EXCEPTION;
        put(fault->message, sizeof(fault->message), "an exception that is not a std::exception");
    }
    current = nullptr;
}

template <class T, class F> T fenced(T failed, srt_fault * fault, F call) {
    T result = failed;
    fence(fault, [&] { result = call(); });
    return result;
}

// ---- stack ---------------------------------------------------------------

// Many pre-tokenizers are regular expressions of the C++ library, which recurses
// for every character that a repetition takes: 30,000 equal letters fill 8 MiB.
constexpr size_t stack_per_byte = 768;

template <class F> void * run(void * call) {
    (*static_cast<F *>(call))();
    return nullptr;
}

// Runs call, which may not throw, on a thread with so much stack. What it does
// not touch costs nothing. false means that there is not as much.
template <class F> bool with_stack(size_t size, F & call) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_t thread;
    const size_t page = 4096 * 16; // a multiple of every page size there is
    const bool started = pthread_attr_setstacksize(&attr, (size + page - 1) / page * page) == 0 &&
                         pthread_create(&thread, &attr, run<F>, &call) == 0;
    pthread_attr_destroy(&attr);
    return started && pthread_join(thread, nullptr) == 0;
}

// ---- the log -------------------------------------------------------------

std::atomic<int32_t> log_level{GGML_LOG_LEVEL_WARN};

// A line comes in fragments; those after the first have level CONT.
thread_local int32_t line_level = GGML_LOG_LEVEL_NONE;

// What ends the quantizing that this thread is inside of. llama.cpp offers no
// callback for that, but it writes a line for every tensor, with no other thread
// at work, and takes an exception for a failure.
thread_local srt_flag * quantizing = nullptr;

bool cancelled(const srt_flag * flag) { return __atomic_load_n(&flag->cancelled, __ATOMIC_RELAXED) != 0; }

void on_log(enum ggml_log_level level, const char * text, void *) {
    if (quantizing != nullptr && cancelled(quantizing)) {
        quantizing = nullptr;
        throw std::runtime_error("cancelled");
    }
    if (level != GGML_LOG_LEVEL_CONT) {
        // What llama.cpp says of a decode that was cancelled is no failure.
        line_level = decoding != nullptr && cancelled(decoding) ? GGML_LOG_LEVEL_DEBUG : level;
    }
    if (current != nullptr && line_level >= GGML_LOG_LEVEL_WARN && line_level <= GGML_LOG_LEVEL_ERROR) {
        const size_t used = std::strlen(current->log);
        put(current->log + used, sizeof(current->log) - used, text);
    }
    // Once what was asked for is narrower than this line, Go is not called at all.
    if (line_level == GGML_LOG_LEVEL_NONE || line_level < log_level.load(std::memory_order_relaxed)) {
        return;
    }
    // A Go callback must not run under a fence that an abort could unwind.
    srt_fault * outer = current;
    current = nullptr;
    sortesLog(line_level, const_cast<char *>(text));
    current = outer;
}

// ---- cancelling ----------------------------------------------------------

// Polled between the nodes of a graph; true stops the decode.
bool on_abort_poll(void * data) {
    return cancelled(static_cast<srt_flag *>(data));
}

// false stops the loading.
bool on_progress(float progress, void * data) {
    srt_flag * flag = static_cast<srt_flag *>(data);
    __atomic_store(&flag->progress, &progress, __ATOMIC_RELAXED);
    return !cancelled(flag);
}

} // namespace

extern "C" {

const char * srt_archive_pin(void)      { return SORTES_PIN; }
const char * srt_archive_stamp(void)    { return SORTES_STAMP; }
const char * srt_archive_features(void) { return SORTES_CPU_FEATURES; }
const char * srt_archive_compiler(void) { return SORTES_COMPILER; }
const char * srt_archive_backends(void) { return SORTES_BACKENDS; }

void srt_init(void) {
    llama_log_set(on_log, nullptr);
    ggml_set_abort_callback(on_abort);
    llama_backend_init();
}

void srt_log_level(int32_t level) { log_level.store(level); }

void  srt_flag_set(srt_flag * f)   { __atomic_store_n(&f->cancelled, 1, __ATOMIC_RELAXED); }
void  srt_flag_clear(srt_flag * f) { __atomic_store_n(&f->cancelled, 0, __ATOMIC_RELAXED); }
float srt_flag_progress(srt_flag * f) {
    float p;
    __atomic_load(&f->progress, &p, __ATOMIC_RELAXED);
    return p;
}

// ---- model ---------------------------------------------------------------

struct llama_model * srt_model_load(const char ** paths, size_t n, struct llama_model_params params, srt_flag * flag, srt_fault * fault) {
    params.progress_callback           = on_progress;
    params.progress_callback_user_data = flag;
    return fenced<struct llama_model *>(nullptr, fault, [&] {
        return n == 1 ? llama_model_load_from_file(paths[0], params)
                      : llama_model_load_from_splits(paths, n, params);
    });
}

void srt_model_free(struct llama_model * model, srt_fault * fault) {
    fence(fault, [&] { llama_model_free(model); });
}

uint32_t srt_quantize(const char * in, const char * out, const llama_model_quantize_params * params, srt_flag * flag, srt_fault * fault) {
    quantizing = flag;
    const uint32_t failed = fenced<uint32_t>(1, fault, [&] { return llama_model_quantize(in, out, params); });
    quantizing = nullptr;
    return failed;
}

// ---- vocabulary ----------------------------------------------------------

int32_t srt_tokenize(const struct llama_vocab * vocab, const char * text, int32_t len, llama_token * out, int32_t max, bool add_special, bool parse_special, srt_fault * fault) {
    int32_t n = 0;
    auto tokenize = [&] {
        n = fenced<int32_t>(0, fault, [&] { return llama_tokenize(vocab, text, len, out, max, add_special, parse_special); });
    };
    if (len <= 1024) {
        tokenize();
    } else if (!with_stack((1 << 20) + (size_t) len * stack_per_byte, tokenize)) {
        fence(fault, [&] { throw std::runtime_error("no memory for a text of " + std::to_string(len) + " bytes"); });
    }
    return n;
}

int64_t srt_pieces(const struct llama_vocab * vocab, llama_token first, int32_t n, char * out, int64_t max, int32_t * ends, bool special, srt_fault * fault) {
    return fenced<int64_t>(0, fault, [&] {
        int64_t used = 0;
        for (int32_t i = 0; i < n; i++) {
            const int64_t room = used < max ? max - used : 0;
            const int32_t size = llama_token_to_piece(vocab, first + i, out + (max - room), (int32_t) std::min<int64_t>(room, INT32_MAX), 0, special);
            used += size < 0 ? -(int64_t) size : size;
            ends[i] = (int32_t) used;
        }
        return used;
    });
}

int32_t srt_attributes(const struct llama_vocab * vocab, llama_token token, srt_fault * fault) {
    return fenced<int32_t>(0, fault, [&] { return (int32_t) llama_vocab_get_attr(vocab, token); });
}

float srt_score(const struct llama_vocab * vocab, llama_token token, srt_fault * fault) {
    return fenced<float>(0, fault, [&] { return llama_vocab_get_score(vocab, token); });
}

int32_t srt_end_tokens(const struct llama_vocab * vocab, llama_token * out, int32_t max, srt_fault * fault) {
    return fenced<int32_t>(0, fault, [&] {
        int32_t found = 0;
        for (llama_token t = 0, n = llama_vocab_n_tokens(vocab); t < n && found < max; t++) {
            if (llama_vocab_is_eog(vocab, t)) {
                out[found++] = t;
            }
        }
        return found;
    });
}

// ---- session -------------------------------------------------------------

struct llama_context * srt_context_new(struct llama_model * model, struct llama_context_params params, srt_flag * flag, srt_fault * fault) {
    params.abort_callback      = on_abort_poll;
    params.abort_callback_data = flag;
    return fenced<struct llama_context *>(nullptr, fault, [&] { return llama_init_from_model(model, params); });
}

void srt_context_free(struct llama_context * ctx, srt_fault * fault) {
    fence(fault, [&] { llama_free(ctx); });
}

srt_eval * srt_eval_new(int32_t capacity, int32_t sequences) {
    srt_eval * e = static_cast<srt_eval *>(std::calloc(1, sizeof(srt_eval)));
    if (e == nullptr) {
        return nullptr;
    }
    const size_t n = (size_t) capacity;
    e->ids            = static_cast<llama_seq_id *>(std::calloc(n * (size_t) sequences, sizeof(llama_seq_id)));
    e->batch.token    = static_cast<llama_token *>(std::calloc(n, sizeof(llama_token)));
    e->batch.pos      = static_cast<llama_pos *>(std::calloc(n, sizeof(llama_pos)));
    e->batch.n_seq_id = static_cast<int32_t *>(std::calloc(n, sizeof(int32_t)));
    e->batch.seq_id   = static_cast<llama_seq_id **>(std::calloc(n, sizeof(llama_seq_id *)));
    e->batch.logits   = static_cast<int8_t *>(std::calloc(n, sizeof(int8_t)));
    if (!e->ids || !e->batch.token || !e->batch.pos || !e->batch.n_seq_id || !e->batch.seq_id || !e->batch.logits) {
        srt_eval_free(e);
        return nullptr;
    }
    for (size_t i = 0; i < n; i++) {
        e->batch.n_seq_id[i] = 1;
        e->batch.seq_id[i]   = e->ids + i * (size_t) sequences;
    }
    return e;
}

void srt_eval_free(srt_eval * e) {
    if (e == nullptr) {
        return;
    }
    std::free(e->ids);
    std::free(e->batch.token);
    std::free(e->batch.pos);
    std::free(e->batch.n_seq_id);
    std::free(e->batch.seq_id);
    std::free(e->batch.logits);
    std::free(e);
}

int32_t srt_decode(struct llama_context * ctx, srt_eval * e, int32_t n) {
    e->logits     = nullptr;
    e->embeddings = nullptr;
    struct llama_batch batch = e->batch;
    batch.n_tokens = n;
    decoding = &e->flag;
    const int32_t result = fenced<int32_t>(-1000, &e->fault, [&] {
        const int32_t code = llama_decode(ctx, batch);
        if (code == 0) {
            e->logits     = llama_get_logits(ctx); // waits for the device
            e->embeddings = llama_get_embeddings(ctx);
        }
        return code;
    });
    decoding = nullptr;
    return result;
}

float * srt_logits_ith(struct llama_context * ctx, int32_t i, srt_fault * fault) {
    return fenced<float *>(nullptr, fault, [&] { return llama_get_logits_ith(ctx, i); });
}

float * srt_embeddings_seq(struct llama_context * ctx, int32_t seq, srt_fault * fault) {
    return fenced<float *>(nullptr, fault, [&] { return llama_get_embeddings_seq(ctx, seq); });
}

bool srt_memory_remove(struct llama_context * ctx, int32_t seq, int32_t from, int32_t to, srt_fault * fault) {
    return fenced<bool>(false, fault, [&] { return llama_memory_seq_rm(llama_get_memory(ctx), seq, from, to); });
}

void srt_memory_copy(struct llama_context * ctx, int32_t dst, int32_t src, int32_t from, int32_t to, srt_fault * fault) {
    fence(fault, [&] { llama_memory_seq_cp(llama_get_memory(ctx), src, dst, from, to); });
}

void srt_memory_shift(struct llama_context * ctx, int32_t seq, int32_t from, int32_t to, int32_t delta, srt_fault * fault) {
    fence(fault, [&] { llama_memory_seq_add(llama_get_memory(ctx), seq, from, to, delta); });
}

bool srt_memory_can_shift(struct llama_context * ctx, srt_fault * fault) {
    return fenced<bool>(false, fault, [&] { return llama_memory_can_shift(llama_get_memory(ctx)); });
}

int32_t srt_memory_first(struct llama_context * ctx, int32_t seq, srt_fault * fault) {
    return fenced<int32_t>(-1, fault, [&] { return llama_memory_seq_pos_min(llama_get_memory(ctx), seq); });
}

int32_t srt_memory_last(struct llama_context * ctx, int32_t seq, srt_fault * fault) {
    return fenced<int32_t>(-1, fault, [&] { return llama_memory_seq_pos_max(llama_get_memory(ctx), seq); });
}

void srt_memory_clear(struct llama_context * ctx, srt_fault * fault) {
    fence(fault, [&] { llama_memory_clear(llama_get_memory(ctx), false); });
}

size_t srt_state_size(struct llama_context * ctx, int32_t seq, uint32_t flags, srt_fault * fault) {
    return fenced<size_t>(0, fault, [&] { return llama_state_seq_get_size_ext(ctx, seq, flags); });
}

size_t srt_state_get(struct llama_context * ctx, uint8_t * out, size_t size, int32_t seq, uint32_t flags, srt_fault * fault) {
    return fenced<size_t>(0, fault, [&] { return llama_state_seq_get_data_ext(ctx, out, size, seq, flags); });
}

size_t srt_state_set(struct llama_context * ctx, const uint8_t * in, size_t size, int32_t seq, uint32_t flags, srt_fault * fault) {
    return fenced<size_t>(0, fault, [&] { return llama_state_seq_set_data_ext(ctx, in, size, seq, flags); });
}

// ---- threads -------------------------------------------------------------

struct ggml_threadpool * srt_pool_new(int32_t threads, uint32_t poll, srt_fault * fault) {
    return fenced<struct ggml_threadpool *>(nullptr, fault, [&] {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
        params.poll   = poll;
        params.paused = true; // a decode resumes it
        return ggml_threadpool_new(&params);
    });
}

void srt_pool_free(struct ggml_threadpool * pool, srt_fault * fault) {
    fence(fault, [&] { ggml_threadpool_free(pool); });
}

// ---- adapters ------------------------------------------------------------

struct llama_adapter_lora * srt_adapter_load(struct llama_model * model, const char * path, srt_fault * fault) {
    return fenced<struct llama_adapter_lora *>(nullptr, fault, [&] { return llama_adapter_lora_init(model, path); });
}

void srt_adapter_free(struct llama_adapter_lora * adapter, srt_fault * fault) {
    fence(fault, [&] { llama_adapter_lora_free(adapter); });
}

int32_t srt_adapters_set(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n, float * scales, srt_fault * fault) {
    return fenced<int32_t>(-1, fault, [&] { return llama_set_adapters_lora(ctx, adapters, n, scales); });
}

// ---- devices -------------------------------------------------------------

// The RPC backend is looked up by name, so that an archive without it links.
bool srt_add_rpc_server(const char * endpoint, srt_fault * fault) {
    return fenced<bool>(false, fault, [&] {
        ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
        if (rpc == nullptr) {
            throw std::runtime_error("this llama.cpp was built without the RPC backend: run ./build.sh --rpc");
        }
        typedef ggml_backend_reg_t (*add_server_t)(const char *);
        add_server_t add = reinterpret_cast<add_server_t>(ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
        if (add == nullptr) {
            throw std::runtime_error("the RPC backend has no ggml_backend_rpc_add_server");
        }
        ggml_backend_reg_t server = add(endpoint);
        if (server == nullptr) {
            return false;
        }
        ggml_backend_register(server);
        return true;
    });
}

void srt_device_memory(ggml_backend_dev_t dev, size_t * free, size_t * total, srt_fault * fault) {
    fence(fault, [&] { ggml_backend_dev_memory(dev, free, total); });
}

// ---- llama.cpp's sampler chain -------------------------------------------

srt_sampler * srt_sampler_new(int32_t n_vocab) {
    srt_sampler * s = static_cast<srt_sampler *>(std::calloc(1, sizeof(srt_sampler)));
    if (s == nullptr) {
        return nullptr;
    }
    s->room = static_cast<llama_token_data *>(std::calloc((size_t) n_vocab, sizeof(llama_token_data)));
    fence(&s->fault, [&] { s->chain = llama_sampler_chain_init(llama_sampler_chain_default_params()); });
    if (s->room == nullptr || s->chain == nullptr) {
        srt_sampler_free(s);
        return nullptr;
    }
    return s;
}

void srt_sampler_free(srt_sampler * s) {
    fence(&s->fault, [&] { llama_sampler_free(s->chain); });
    std::free(s->room);
    std::free(s);
}

bool srt_sampler_add(srt_sampler * s, const char * name, int32_t n_vocab, const double * v, size_t n) {
    return fenced<bool>(false, &s->fault, [&] {
        const auto is = [&](const char * other) { return std::strcmp(name, other) == 0; };
        const auto f  = [&](size_t i) { return (float) v[i]; };
        const auto i  = [&](size_t k) { return (int32_t) v[k]; };
        const auto u  = [&](size_t k) { return (uint32_t) v[k]; };
        struct llama_sampler * added = nullptr;
        if (is("greedy")) {
            added = llama_sampler_init_greedy();
        } else if (is("dist")) {
            added = llama_sampler_init_dist(u(0));
        } else if (is("top_k")) {
            added = llama_sampler_init_top_k(i(0));
        } else if (is("top_p")) {
            added = llama_sampler_init_top_p(f(0), u(1));
        } else if (is("min_p")) {
            added = llama_sampler_init_min_p(f(0), u(1));
        } else if (is("typical")) {
            added = llama_sampler_init_typical(f(0), u(1));
        } else if (is("temp")) {
            added = llama_sampler_init_temp(f(0));
        } else if (is("temp_ext")) {
            added = llama_sampler_init_temp_ext(f(0), f(1), f(2));
        } else if (is("xtc")) {
            added = llama_sampler_init_xtc(f(0), f(1), u(2), u(3));
        } else if (is("top_n_sigma")) {
            added = llama_sampler_init_top_n_sigma(f(0));
        } else if (is("mirostat")) {
            added = llama_sampler_init_mirostat(n_vocab, u(0), f(1), f(2), i(3));
        } else if (is("mirostat_v2")) {
            added = llama_sampler_init_mirostat_v2(u(0), f(1), f(2));
        } else if (is("penalties")) {
            added = llama_sampler_init_penalties(n_vocab, i(0), f(1), f(2), f(3));
        } else if (is("dry")) {
            added = llama_sampler_init_dry(nullptr, f(0), f(1), i(2), i(3), nullptr, 0);
        } else if (is("adaptive_p")) {
            added = llama_sampler_init_adaptive_p(f(0), f(1), u(2));
        } else if (is("logit_bias")) {
            std::vector<llama_logit_bias> biases;
            for (size_t k = 0; k + 1 < n; k += 2) {
                biases.push_back({i(k), f(k + 1)});
            }
            added = llama_sampler_init_logit_bias(n_vocab, (int32_t) biases.size(), biases.data());
        }
        if (added != nullptr) {
            llama_sampler_chain_add(s->chain, added);
        }
        return added != nullptr;
    });
}

void srt_sampler_apply(srt_sampler * s, const float * logits, int32_t n_vocab) {
    for (int32_t i = 0; i < n_vocab; i++) {
        s->room[i] = llama_token_data{i, logits[i], 0.0f};
    }
    s->candidates = llama_token_data_array{s->room, (size_t) n_vocab, -1, false};
    fence(&s->fault, [&] { llama_sampler_apply(s->chain, &s->candidates); });
}

void srt_sampler_accept(srt_sampler * s, llama_token token) {
    fence(&s->fault, [&] { llama_sampler_accept(s->chain, token); });
}

void srt_sampler_reset(srt_sampler * s) {
    fence(&s->fault, [&] { llama_sampler_reset(s->chain); });
}

// ---- grammars, for tests -------------------------------------------------

struct llama_sampler * srt_grammar_new(const struct llama_vocab * vocab, const char * gbnf, const char * root, srt_fault * fault) {
    return fenced<struct llama_sampler *>(nullptr, fault, [&] { return llama_sampler_init_grammar(vocab, gbnf, root); });
}

struct llama_sampler * srt_grammar_new_lazy(const struct llama_vocab * vocab, const char * gbnf, const char * root, const char * pattern, srt_fault * fault) {
    return fenced<struct llama_sampler *>(nullptr, fault, [&] {
        return llama_sampler_init_grammar_lazy_patterns(vocab, gbnf, root, &pattern, 1, nullptr, 0);
    });
}

struct llama_sampler * srt_grammar_clone(struct llama_sampler * grammar, srt_fault * fault) {
    return fenced<struct llama_sampler *>(nullptr, fault, [&] { return llama_sampler_clone(grammar); });
}

void srt_grammar_free(struct llama_sampler * grammar, srt_fault * fault) {
    fence(fault, [&] { llama_sampler_free(grammar); });
}

void srt_grammar_accept(struct llama_sampler * grammar, llama_token token, srt_fault * fault) {
    fence(fault, [&] { llama_sampler_accept(grammar, token); });
}

void srt_grammar_check(struct llama_sampler * grammar, const llama_token * tokens, bool * allowed, int32_t n, srt_fault * fault) {
    fence(fault, [&] {
        std::vector<llama_token_data> data(n);
        for (int32_t i = 0; i < n; i++) {
            data[i] = {tokens[i], 0.0f, 0.0f};
        }
        llama_token_data_array array = {data.data(), data.size(), -1, false};
        llama_sampler_apply(grammar, &array);
        for (int32_t i = 0; i < n; i++) {
            allowed[i] = data[i].logit == 0.0f;
        }
    });
}

void srt_fail(int32_t kind, srt_fault * fault) {
    fence(fault, [&] {
        switch (kind) {
            case SRT_ABORTED:   GGML_ABORT("asked to abort");
            case SRT_EXCEPTION: throw std::runtime_error("asked to throw");
            default:            break;
        }
    });
}

} // extern "C"
