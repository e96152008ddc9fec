#include "kernels/cpu/detect.h"

#include <cpuid.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Register state components in XCR0 (Intel SDM volume 1, section 13.1). */
#define XCR0_AVX 0x6u      /* xmm, ymm */
#define XCR0_AVX512 0xe6u  /* and opmask, upper halves, zmm16-31 */
#define XCR0_AMX 0x60000u  /* tile configuration and tile data */

/* A code of arch_prctl(2) since Linux 5.16; older headers lack the name. */
#define ARCH_REQ_XCOMP_PERM_CODE 0x1023
#define XFEATURE_TILE_DATA 18

struct cpu_leaves {
    unsigned c1, b7, c7, d7, a71; /* leaf 1 ecx; leaf 7 ebx, ecx and edx; leaf 7.1 eax */
    uint64_t xcr0;
};

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((uint64_t)hi << 32) | lo;
}

static struct cpu_leaves read_leaves(void)
{
    struct cpu_leaves l = {0};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return l;
    l.c1 = c;
    if (c & bit_OSXSAVE)
        l.xcr0 = read_xcr0();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        l.b7 = b;
        l.c7 = c;
        l.d7 = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
            l.a71 = a;
    }
    return l;
}

bool qr_detect_avx2(void)
{
    struct cpu_leaves l = read_leaves();
    const unsigned c1 = bit_AVX | bit_FMA | bit_F16C;
    return (l.xcr0 & XCR0_AVX) == XCR0_AVX && (l.c1 & c1) == c1 && (l.b7 & bit_AVX2);
}

#ifdef QUIRE_EMULATE_LEVELS

/* For tests: these are AVX2 code (cmake/isa.cmake), so they are here wherever that is. */
bool qr_detect_avx_vnni(void)
{
    return qr_detect_avx2();
}

bool qr_detect_avx512(void)
{
    return qr_detect_avx2();
}

bool qr_detect_amx(void)
{
    return qr_detect_avx2();
}

#else

bool qr_detect_avx_vnni(void)
{
    return qr_detect_avx2() && (read_leaves().a71 & 1u << 4);
}

bool qr_detect_avx512(void)
{
    struct cpu_leaves l = read_leaves();
    const unsigned b7 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    return qr_detect_avx2() && (l.xcr0 & XCR0_AVX512) == XCR0_AVX512 && (l.b7 & b7) == b7;
}

static bool has_amx(void)
{
    struct cpu_leaves l = read_leaves();
    const unsigned d7 = (1u << 22) | (1u << 24) | (1u << 25); /* AMX-BF16, AMX-TILE, AMX-INT8 */
    const unsigned a71 = 1u << 5;                             /* AVX512-BF16 */
    const unsigned c7 = bit_AVX512VBMI;
    return qr_detect_avx512() && (l.xcr0 & XCR0_AMX) == XCR0_AMX && (l.d7 & d7) == d7 && (l.c7 & c7) == c7 && (l.a71 & a71) == a71;
}

bool qr_detect_amx(void)
{
    return has_amx() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CODE, XFEATURE_TILE_DATA) == 0;
}

#endif
