/* What the rest of the program names of one level, empty: for a level that is not compiled. A sanitizer build takes it for levels that the processor lacks
 * (cmake/isa.cmake), which no backend opens there (kernels/cpu/detect.h). Tests link it for each set of such levels. */
#include "base/assert.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/isa.h"

const struct qr_kernels QR_ISA_NAME(kernels) = {.name = QR_ISA_TEXT(QR_ISA)};

const struct qr_backward QR_ISA_NAME(backward) = {.name = QR_ISA_TEXT(QR_ISA)};
