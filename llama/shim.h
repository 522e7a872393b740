// The C side of package llama: fences around every native call that can
// assert, throw or log, and the few callbacks llama.cpp needs, all of them on
// C memory. Everything here has C linkage and no exception leaves it.

#ifndef SORTES_SHIM_H
#define SORTES_SHIM_H

#if defined(__has_include)
#  if !__has_include("llama.h")
#    error "llama.cpp is not built yet: run ./build.sh in the root of sortes (or use -tags system with llama.pc on the PKG_CONFIG_PATH)"
#  endif
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a fenced call ended.
enum {
    SRT_OK        = 0,
    SRT_ABORTED   = 1, // an assertion of ggml or llama.cpp failed
    SRT_EXCEPTION = 2, // a C++ exception
};

// What a fenced call left behind. Strings are zero-terminated.
typedef struct {
    int32_t kind;
    char    message[512]; // the assertion or the exception
    char    log[3072];    // warnings and errors logged by this call
} srt_fault;

// A flag that one thread sets while another one is inside a native call.
typedef struct {
    int32_t cancelled;
    float   progress; // of loading, 0 to 1
} srt_flag;

// The batch of a session. All memory belongs to C, for llama.cpp keeps none of
// it but reads through pointers to pointers, which must not be Go's.
typedef struct {
    struct llama_batch batch;
    llama_seq_id     * ids;        // what seq_id[i] points into: the same number of entries for each row
    float            * logits;     // rows of the last decode, NULL where there are none
    float            * embeddings;
    srt_flag           flag;
    srt_fault          fault;
} srt_eval;

// Facts of the archive this program was linked with; empty for a llama.cpp
// that build.sh did not build.
const char * srt_archive_pin(void);
const char * srt_archive_stamp(void);
const char * srt_archive_features(void);
const char * srt_archive_compiler(void);
const char * srt_archive_backends(void);

// Installs the log and abort handlers and initialises the backends. Call once.
void srt_init(void);

// Lines below this ggml_log_level are dropped before they reach Go.
void srt_log_level(int32_t level);

void srt_flag_set(srt_flag * f);
void srt_flag_clear(srt_flag * f);
float srt_flag_progress(srt_flag * f);

// Model. paths has n entries: one for a whole file, several for a split one.
struct llama_model * srt_model_load(const char ** paths, size_t n, struct llama_model_params params, srt_flag * flag, srt_fault * fault);
void                 srt_model_free(struct llama_model * model, srt_fault * fault);
uint32_t             srt_quantize(const char * in, const char * out, const llama_model_quantize_params * params, srt_flag * flag, srt_fault * fault);

// Vocabulary.
int32_t srt_tokenize(const struct llama_vocab * vocab, const char * text, int32_t len, llama_token * out, int32_t max, bool add_special, bool parse_special, srt_fault * fault);

// Writes the text of the n tokens from first on to out, one behind the other, and where each
// ends to ends[0..n). Returns the bytes needed, which may be more than max:
// then nothing beyond max was written.
int64_t srt_pieces(const struct llama_vocab * vocab, llama_token first, int32_t n, char * out, int64_t max, int32_t * ends, bool special, srt_fault * fault);
int32_t srt_attributes(const struct llama_vocab * vocab, llama_token token, srt_fault * fault);
float   srt_score(const struct llama_vocab * vocab, llama_token token, srt_fault * fault);
int32_t srt_end_tokens(const struct llama_vocab * vocab, llama_token * out, int32_t max, srt_fault * fault);

// Session.
struct llama_context * srt_context_new(struct llama_model * model, struct llama_context_params params, srt_flag * flag, srt_fault * fault);
void                   srt_context_free(struct llama_context * ctx, srt_fault * fault);
srt_eval             * srt_eval_new(int32_t capacity, int32_t sequences); // rows, and sequences of a row
void                   srt_eval_free(srt_eval * e);

// Decodes the first n rows of e, waits for the result and sets e->logits and
// e->embeddings. Returns what llama_decode returned.
int32_t srt_decode(struct llama_context * ctx, srt_eval * e, int32_t n);
float * srt_logits_ith(struct llama_context * ctx, int32_t i, srt_fault * fault);
float * srt_embeddings_seq(struct llama_context * ctx, int32_t seq, srt_fault * fault);

bool    srt_memory_remove(struct llama_context * ctx, int32_t seq, int32_t from, int32_t to, srt_fault * fault);
void    srt_memory_copy(struct llama_context * ctx, int32_t dst, int32_t src, int32_t from, int32_t to, srt_fault * fault);
void    srt_memory_shift(struct llama_context * ctx, int32_t seq, int32_t from, int32_t to, int32_t delta, srt_fault * fault);
bool    srt_memory_can_shift(struct llama_context * ctx, srt_fault * fault);
int32_t srt_memory_first(struct llama_context * ctx, int32_t seq, srt_fault * fault);
int32_t srt_memory_last(struct llama_context * ctx, int32_t seq, srt_fault * fault);
void    srt_memory_clear(struct llama_context * ctx, srt_fault * fault);

size_t  srt_state_size(struct llama_context * ctx, int32_t seq, uint32_t flags, srt_fault * fault);
size_t  srt_state_get(struct llama_context * ctx, uint8_t * out, size_t size, int32_t seq, uint32_t flags, srt_fault * fault);
size_t  srt_state_set(struct llama_context * ctx, const uint8_t * in, size_t size, int32_t seq, uint32_t flags, srt_fault * fault);

// Threads.
struct ggml_threadpool * srt_pool_new(int32_t threads, uint32_t poll, srt_fault * fault);
void                     srt_pool_free(struct ggml_threadpool * pool, srt_fault * fault);

// Adapters.
struct llama_adapter_lora * srt_adapter_load(struct llama_model * model, const char * path, srt_fault * fault);
void                        srt_adapter_free(struct llama_adapter_lora * adapter, srt_fault * fault);
int32_t                     srt_adapters_set(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n, float * scales, srt_fault * fault);

// Devices.
bool srt_add_rpc_server(const char * endpoint, srt_fault * fault);
void srt_device_memory(ggml_backend_dev_t dev, size_t * free, size_t * total, srt_fault * fault);

// llama.cpp's own sampler chain, for comparisons, with the candidates it works on.
typedef struct {
    struct llama_sampler       * chain;
    llama_token_data           * room;       // of the whole vocabulary
    llama_token_data_array       candidates; // what the last apply left; its data lies in room
    srt_fault                    fault;
} srt_sampler;

srt_sampler * srt_sampler_new(int32_t n_vocab);
void          srt_sampler_free(srt_sampler * s);

// Adds a sampler by name; false for an unknown one. The values, n of them, are
// checked by the caller.
bool srt_sampler_add(srt_sampler * s, const char * name, int32_t n_vocab, const double * v, size_t n);

// Fills the candidates from a row of logits and applies the chain.
void srt_sampler_apply(srt_sampler * s, const float * logits, int32_t n_vocab);
void srt_sampler_accept(srt_sampler * s, llama_token token);
void srt_sampler_reset(srt_sampler * s);

// Grammars, for tests: llama.cpp's own, beside which package grammar is tested.
// The second one waits until a text matches a pattern.
struct llama_sampler * srt_grammar_new(const struct llama_vocab * vocab, const char * gbnf, const char * root, srt_fault * fault);
struct llama_sampler * srt_grammar_new_lazy(const struct llama_vocab * vocab, const char * gbnf, const char * root, const char * pattern, srt_fault * fault);
struct llama_sampler * srt_grammar_clone(struct llama_sampler * grammar, srt_fault * fault);
void                   srt_grammar_free(struct llama_sampler * grammar, srt_fault * fault);
void                   srt_grammar_accept(struct llama_sampler * grammar, llama_token token, srt_fault * fault);

// Sets allowed[i] to whether tokens[i] may come next.
void srt_grammar_check(struct llama_sampler * grammar, const llama_token * tokens, bool * allowed, int32_t n, srt_fault * fault);

// For tests of the fence: fails the way the kind says, inside a fence.
void srt_fail(int32_t kind, srt_fault * fault);

#ifdef __cplusplus
}
#endif

#endif
