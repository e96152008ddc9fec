/* What the rest of the program names of one level, empty: for a level that is not compiled. A sanitizer build takes it for levels that the processor lacks
 * (cmake/isa.cmake), which no backend opens there (kernels/cpu/detect.h). Tests link it for each set of such levels. */
#include "base/assert.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/coded/pack_words.h"

const struct qr_kernels QR_ISA_NAME(kernels) = {.name = QR_ISA_TEXT(QR_ISA)};

const struct qr_backward QR_ISA_NAME(backward) = {.name = QR_ISA_TEXT(QR_ISA)};

static _Noreturn void absent(void)
{
    qr_panic("level %s was not compiled", QR_ISA_TEXT(QR_ISA));
}

void QR_ISA_NAME(pack_words)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                             int64_t n_rows, int64_t first, int64_t n)
{
    absent();
}

void QR_ISA_NAME(pack_sorted)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const int32_t *inputs, int64_t n_rows)
{
    absent();
}

void QR_ISA_NAME(pack_taken)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_words *words,
                             const int32_t *inputs, int64_t n_rows)
{
    absent();
}
