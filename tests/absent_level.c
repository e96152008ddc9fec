/* The tables of a level that the processor lacks on which a sanitizer build is configured (cmake/isa.cmake): nobody opens them there (kernels/cpu/detect.h). */
#include "kernels/cpu/isa/back.h"
#include "kernels/cpu/isa/isa.h"

const struct qr_kernels QR_ISA_NAME(kernels) = {.name = QR_ISA_TEXT(QR_ISA)};

const struct qr_backward QR_ISA_NAME(backward) = {.name = QR_ISA_TEXT(QR_ISA)};
