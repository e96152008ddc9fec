/* cuda.h - the part of CUDA's driver interface that quire calls, declared anew for the emulated device (emu.h): tensor maps, and nothing else. Names and
 * meanings are those of the driver's manual, the contents of a map are ours. */
#ifndef QR_TESTS_CUDA_EMU_CUDA_H
#define QR_TESTS_CUDA_EMU_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE } CUresult;
typedef enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 } CUtensorMapDataType;
typedef enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE } CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B
} CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 } CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE } CUtensorMapFloatOOBfill;

#define QR_EMU_MAP_DIMS 5

typedef struct CUtensorMap_st {
    uint64_t magic; /* that of maps which were encoded */
    const uint8_t *base;
    uint64_t dim[QR_EMU_MAP_DIMS], stride[QR_EMU_MAP_DIMS]; /* bytes; stride[0] is an element */
    uint32_t box[QR_EMU_MAP_DIMS];
    int32_t n_dims, swizzle_bytes;
} CUtensorMap; /* the driver's is aligned to 128 bytes */

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dim, const cuuint64_t *stride,
                                const cuuint32_t *box, const cuuint32_t *element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

#ifdef __cplusplus
}
#endif
#endif
