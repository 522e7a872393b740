/* Put in front of every C++ file of an AMX build by GCC before 14 (build.sh, -include).
 *
 * The intrinsic _tile_loadconfig of GCC before 12.4, 13.3 and 14 tells the optimiser that the
 * instruction reads 8 bytes of its operand. It reads 64. The stores to the other 56 are then
 * dropped as dead, and the CPU faults on the garbage that it finds there. */
#ifndef SORTES_AMX_TILE_LOADCONFIG_H
#define SORTES_AMX_TILE_LOADCONFIG_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

static inline __attribute__((always_inline)) void sortes_tile_loadconfig(const void *config) {
    struct tile_config {
        char bytes[64];
    };
    __asm__ volatile("ldtilecfg\t%0" : : "m"(*(const struct tile_config *)config));
}

#undef _tile_loadconfig
#define _tile_loadconfig(config) sortes_tile_loadconfig(config)
#endif

#endif
