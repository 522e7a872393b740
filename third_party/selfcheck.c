/* selfcheck MODEL.gguf: does this build of llama.cpp compute what it should?
 *
 * build.sh links this program against a fresh archive and runs it before the archive is
 * installed. It writes a small llama model to MODEL.gguf, one layer each of Q4_0, Q4_1, Q8_0 and
 * F16, wide enough for the vector, repacked and AMX kernels; evaluates 1, 16 and again 1 row with
 * the archive, on the CPU and on every GPU that the archive can reach; and compares the logits
 * with a plain scalar evaluation of the same file's weights, written here from the definition of
 * the architecture. Exit status 0: they agree. 1: they do not, or a step failed; stderr says which. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"
#include "llama.h"

enum {
    EMBD = 256,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = EMBD / HEADS,
    KV_DIM = KV_HEADS * HEAD_DIM,
    FF = 512,
    VOCAB = 320,
    LAYERS = 4,
    ROWS = 18, /* evaluated as 1 + 16 + 1 */
    BLOCK = 32 /* weights in a block of Q4_0, Q4_1 and Q8_0 */
};
static const float NORM_EPS = 1e-5f, ROPE_BASE = 10000.0f;

/* The CPU kernels round activations to 8 bits and the cache to 16. That moves the logits by 1.3 to
 * 1.7% of their size (tried: six sets of weights); one block of 32 inputs lost in one matrix of
 * any layer moves them by 6% and more. */
static const double LIMIT = 0.035;

static const enum ggml_type LAYER_TYPE[LAYERS] = {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_F16};

static void fail(const char *what) {
    fprintf(stderr, "self-check: %s\n", what);
    exit(1);
}

/* Weights: random quantised blocks, and the same numbers as floats for the reference. */

static uint32_t rng_state = 2463534242u;

static uint32_t rng(void) { /* Marsaglia's xorshift32 */
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 17;
    rng_state ^= rng_state << 5;
    return rng_state;
}

static float uniform(float low, float high) { return low + (high - low) * (float)(rng() >> 8) / 16777216.0f; }

/* put_half stores v, a normal half-precision number's worth, at p and returns what was stored. */
static float put_half(uint8_t *p, float v) {
    int exponent;
    float mantissa = frexpf(fabsf(v), &exponent);          /* in [0.5, 1) */
    int bits = (int)(mantissa * 2048.0f);                  /* 11 bits, the first one set */
    uint16_t half = (uint16_t)((v < 0) << 15 | (exponent + 14) << 10 | (bits - 1024));
    memcpy(p, &half, 2);
    return copysignf(ldexpf((float)bits, exponent - 11), v);
}

/* put_block writes one block of random weights of about the given size; w receives their values. */
static size_t put_block(uint8_t *p, float *w, enum ggml_type type, float size) {
    float d, m;
    switch (type) {
    case GGML_TYPE_Q4_0: /* scale; 16 bytes of two weights each: i and i + 16 */
        d = put_half(p, size / 4.6f * uniform(0.5f, 1.5f));
        for (int i = 0; i < BLOCK / 2; i++) {
            uint8_t q = p[2 + i] = (uint8_t)rng();
            w[i] = d * (float)((q & 15) - 8);
            w[i + BLOCK / 2] = d * (float)((q >> 4) - 8);
        }
        return 18;
    case GGML_TYPE_Q4_1: /* the same with an offset */
        d = put_half(p, size / 4.6f * uniform(0.5f, 1.5f));
        m = put_half(p + 2, d * uniform(-9.0f, -6.0f));
        for (int i = 0; i < BLOCK / 2; i++) {
            uint8_t q = p[4 + i] = (uint8_t)rng();
            w[i] = d * (float)(q & 15) + m;
            w[i + BLOCK / 2] = d * (float)(q >> 4) + m;
        }
        return 20;
    case GGML_TYPE_Q8_0:
        d = put_half(p, size / 73.0f * uniform(0.5f, 1.5f));
        for (int i = 0; i < BLOCK; i++) {
            int8_t q = (int8_t)((int)(rng() >> 8) % 255 - 127);
            memcpy(p + 2 + i, &q, 1);
            w[i] = d * (float)q;
        }
        return 34;
    case GGML_TYPE_F16:
        for (int i = 0; i < BLOCK; i++) {
            w[i] = put_half(p + 2 * i, size * uniform(0.1f, 1.7f) * ((rng() >> 9) & 1 ? 1.0f : -1.0f));
        }
        return 2 * BLOCK;
    default:
        for (int i = 0; i < BLOCK; i++) { /* F32, for the norms */
            w[i] = uniform(0.5f, 1.5f);
            memcpy(p + 4 * i, &w[i], 4);
        }
        return 4 * BLOCK;
    }
}

struct matrix {
    int in, out;
    float *w; /* out rows of in weights */
};

static struct matrix new_tensor(struct gguf_context *file, struct ggml_context *ctx, const char *name, enum ggml_type type, int in,
                                int out, float size) {
    struct ggml_tensor *t = out == 1 ? ggml_new_tensor_1d(ctx, type, in) : ggml_new_tensor_2d(ctx, type, in, out);
    struct matrix m = {in, out, malloc(sizeof(float) * (size_t)in * (size_t)out)};
    if (!m.w) {
        fail("out of memory");
    }
    uint8_t *p = t->data;
    for (int i = 0; i < in * out; i += BLOCK) {
        p += put_block(p, m.w + i, type, size);
    }
    ggml_set_name(t, name);
    gguf_add_tensor(file, t);
    return m;
}

struct layer {
    struct matrix attn_norm, q, k, v, o, ffn_norm, gate, up, down;
};

struct weights {
    struct matrix embd, norm, output;
    struct layer layer[LAYERS];
};

static void write_model(const char *path, struct weights *w) {
    struct gguf_context *file = gguf_init_empty();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 16 << 20});
    if (!file || !ctx) {
        fail("out of memory");
    }
    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_str(file, "tokenizer.ggml.model", "none");
    gguf_set_val_u32(file, "llama.vocab_size", VOCAB);
    gguf_set_val_u32(file, "llama.context_length", 512);
    gguf_set_val_u32(file, "llama.embedding_length", EMBD);
    gguf_set_val_u32(file, "llama.feed_forward_length", FF);
    gguf_set_val_u32(file, "llama.block_count", LAYERS);
    gguf_set_val_u32(file, "llama.attention.head_count", HEADS);
    gguf_set_val_u32(file, "llama.attention.head_count_kv", KV_HEADS);
    gguf_set_val_u32(file, "llama.rope.dimension_count", HEAD_DIM);
    gguf_set_val_f32(file, "llama.rope.freq_base", ROPE_BASE);
    gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", NORM_EPS);

    /* Sizes are chosen so that every matrix of every layer weighs in the logits. */
    w->embd = new_tensor(file, ctx, "token_embd.weight", GGML_TYPE_Q4_0, EMBD, VOCAB, 2.0f);
    w->norm = new_tensor(file, ctx, "output_norm.weight", GGML_TYPE_F32, EMBD, 1, 1.0f);
    w->output = new_tensor(file, ctx, "output.weight", GGML_TYPE_Q4_0, EMBD, VOCAB, 1 / sqrtf(EMBD));
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &w->layer[i];
        enum ggml_type type = LAYER_TYPE[i];
        const struct {
            struct matrix *m;
            const char *name;
            enum ggml_type type;
            int in, out;
            float size;
        } tensors[] = {
            {&l->attn_norm, "attn_norm", GGML_TYPE_F32, EMBD, 1, 1.0f},
            {&l->q, "attn_q", type, EMBD, EMBD, 1.5f / sqrtf(EMBD)},
            {&l->k, "attn_k", type, EMBD, KV_DIM, 1.5f / sqrtf(EMBD)},
            {&l->v, "attn_v", type, EMBD, KV_DIM, 1 / sqrtf(EMBD)},
            {&l->o, "attn_output", type, EMBD, EMBD, 1 / sqrtf(EMBD)},
            {&l->ffn_norm, "ffn_norm", GGML_TYPE_F32, EMBD, 1, 1.0f},
            {&l->gate, "ffn_gate", type, EMBD, FF, 1 / sqrtf(EMBD)},
            {&l->up, "ffn_up", type, EMBD, FF, 1 / sqrtf(EMBD)},
            {&l->down, "ffn_down", type, FF, EMBD, 1 / sqrtf(FF)},
        };
        for (size_t j = 0; j < sizeof tensors / sizeof *tensors; j++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, tensors[j].name);
            *tensors[j].m = new_tensor(file, ctx, name, tensors[j].type, tensors[j].in, tensors[j].out,
                                       tensors[j].size);
        }
    }
    if (!gguf_write_to_file(file, path, false)) {
        fail("cannot write the model file");
    }
    ggml_free(ctx);
    gguf_free(file);
}

/* The reference: the llama architecture, one number at a time, in double precision. */

static void multiply(double *y, const struct matrix *m, const double *x) {
    for (int i = 0; i < m->out; i++) {
        y[i] = 0;
        for (int j = 0; j < m->in; j++) {
            y[i] += (double)m->w[(size_t)i * (size_t)m->in + (size_t)j] * x[j];
        }
    }
}

static void rms_norm(double *y, const struct matrix *scale, const double *x) {
    double sum = 0;
    for (int i = 0; i < EMBD; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < EMBD; i++) {
        y[i] = x[i] / sqrt(sum / EMBD + NORM_EPS) * (double)scale->w[i];
    }
}

static void rotate(double *x, int heads, int position) { /* RoPE on neighbouring pairs */
    for (int i = 0; i < heads * HEAD_DIM; i += 2) {
        double angle = position * pow(ROPE_BASE, -(double)(i % HEAD_DIM) / HEAD_DIM);
        double a = x[i], b = x[i + 1];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + 1] = a * sin(angle) + b * cos(angle);
    }
}

/* attend: one query row against the keys and values of rows 0 to position. */
static void attend(double *y, const double *q, double (*k)[KV_DIM], double (*v)[KV_DIM], int position) {
    for (int head = 0; head < HEADS; head++) {
        int qi = head * HEAD_DIM, ki = head / (HEADS / KV_HEADS) * HEAD_DIM;
        double weight[ROWS], sum = 0;
        for (int row = 0; row <= position; row++) {
            double dot = 0;
            for (int i = 0; i < HEAD_DIM; i++) {
                dot += q[qi + i] * k[row][ki + i];
            }
            sum += weight[row] = exp(dot / sqrt(HEAD_DIM));
        }
        for (int i = 0; i < HEAD_DIM; i++) {
            y[qi + i] = 0;
            for (int row = 0; row <= position; row++) {
                y[qi + i] += weight[row] / sum * v[row][ki + i];
            }
        }
    }
}

static void reference(double (*logits)[VOCAB], const struct weights *w, const llama_token *tokens) {
    static double k[LAYERS][ROWS][KV_DIM], v[LAYERS][ROWS][KV_DIM];
    for (int row = 0; row < ROWS; row++) {
        double x[EMBD], h[EMBD], q[EMBD], a[EMBD], gate[FF], up[FF];
        for (int i = 0; i < EMBD; i++) {
            x[i] = (double)w->embd.w[tokens[row] * EMBD + i];
        }
        for (int n = 0; n < LAYERS; n++) {
            const struct layer *l = &w->layer[n];
            rms_norm(h, &l->attn_norm, x);
            multiply(q, &l->q, h);
            multiply(k[n][row], &l->k, h);
            multiply(v[n][row], &l->v, h);
            rotate(q, HEADS, row);
            rotate(k[n][row], KV_HEADS, row);
            attend(a, q, k[n], v[n], row);
            multiply(h, &l->o, a);
            for (int i = 0; i < EMBD; i++) {
                x[i] += h[i];
            }
            rms_norm(h, &l->ffn_norm, x);
            multiply(gate, &l->gate, h);
            multiply(up, &l->up, h);
            for (int i = 0; i < FF; i++) { /* SwiGLU */
                up[i] *= gate[i] / (1 + exp(-gate[i]));
            }
            multiply(h, &l->down, up);
            for (int i = 0; i < EMBD; i++) {
                x[i] += h[i];
            }
        }
        rms_norm(h, &w->norm, x);
        multiply(logits[row], &w->output, h);
    }
}

/* The archive's answer, on the given devices (NULL: the CPU alone). */

static void evaluate(double (*logits)[VOCAB], const char *path, const llama_token *tokens, ggml_backend_dev_t device) {
    ggml_backend_dev_t devices[2] = {device, NULL};
    struct llama_model_params mp = llama_model_default_params();
    mp.devices = devices;
    mp.n_gpu_layers = device ? LAYERS + 1 : 0;
    struct llama_model *model = llama_model_load_from_file(path, mp);
    if (!model) {
        fail("the model does not load");
    }
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = 64;
    cp.n_batch = cp.n_ubatch = 16;
    cp.n_threads = cp.n_threads_batch = 2;
    struct llama_context *ctx = llama_init_from_model(model, cp);
    if (!ctx) {
        fail("no context for the model");
    }
    struct llama_batch batch = llama_batch_init(16, 0, 1);
    const int sizes[] = {1, 16, 1};
    for (int i = 0, row = 0; i < 3; i++) {
        batch.n_tokens = sizes[i];
        for (int j = 0; j < sizes[i]; j++) {
            batch.token[j] = tokens[row + j];
            batch.pos[j] = row + j;
            batch.n_seq_id[j] = 1;
            batch.seq_id[j][0] = 0;
            batch.logits[j] = true;
        }
        if (llama_decode(ctx, batch) != 0) {
            fail("evaluation fails");
        }
        for (int j = 0; j < sizes[i]; j++, row++) {
            const float *l = llama_get_logits_ith(ctx, j);
            for (int t = 0; t < VOCAB; t++) {
                logits[row][t] = (double)l[t];
            }
        }
    }
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
}

/* compare returns the worst row's difference: root mean square, as a part of the row's own. */
static double compare(double (*got)[VOCAB], double (*want)[VOCAB]) {
    double worst = 0;
    for (int row = 0; row < ROWS; row++) {
        double difference = 0, size = 0;
        for (int t = 0; t < VOCAB; t++) {
            difference += (got[row][t] - want[row][t]) * (got[row][t] - want[row][t]);
            size += want[row][t] * want[row][t];
        }
        double d = sqrt(difference / size);
        if (!(d <= worst)) { /* also takes a NaN */
            worst = d;
        }
        if (!(worst >= 0)) {
            break;
        }
    }
    return worst;
}

static bool check(const char *where, const char *path, const llama_token *tokens, ggml_backend_dev_t device, double (*want)[VOCAB]) {
    static double got[ROWS][VOCAB];
    evaluate(got, path, tokens, device);
    double d = compare(got, want);
    bool ok = d < LIMIT;
    fprintf(ok ? stdout : stderr, "self-check: %s: logits differ from the reference by %.4f of their size, limit %.4f: %s\n", where, d,
            LIMIT, ok ? "ok" : "WRONG");
    return ok;
}

static void log_errors(enum ggml_log_level level, const char *text, void *unused) {
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fail("usage: selfcheck MODEL.gguf, a file that it may write and remove");
    }
    llama_log_set(log_errors, NULL);
    llama_backend_init();

    static struct weights w;
    static double want[ROWS][VOCAB];
    llama_token tokens[ROWS];
    write_model(argv[1], &w);
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (llama_token)(rng() % VOCAB);
    }
    reference(want, &w, tokens);

    bool ok = check("CPU", argv[1], tokens, NULL, want);
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
        if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            ok = check(ggml_backend_dev_name(device), argv[1], tokens, device, want) && ok;
        }
    }
    remove(argv[1]);
    return ok ? 0 : 1;
}
