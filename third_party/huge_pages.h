/* Put in front of every C file on Linux (build.sh, -include).
 *
 * Asks the kernel for huge pages where ggml allocates a large buffer: repacked weights, the KV cache,
 * activations. All of the weights are read for every token, and with pages of 4 KiB a good part of the
 * time goes into finding the next one: 5 to 9% of a model's generation speed was measured. Where huge
 * pages are switched off, or are always on, the advice changes nothing. */
#ifndef SORTES_HUGE_PAGES_H
#define SORTES_HUGE_PAGES_H

#ifdef __linux__
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <sys/mman.h>

static inline int sortes_memalign(void **memory, size_t alignment, size_t size) {
    const size_t page = (size_t)2 << 20;
    if (size < 4 * page) {
        return posix_memalign(memory, alignment, size);
    }
    const int result = posix_memalign(memory, alignment < page ? page : alignment, size);
    if (result == 0) {
        (void)madvise(*memory, size / page * page, MADV_HUGEPAGE);
    }
    return result;
}

#define posix_memalign sortes_memalign
#endif

#endif
