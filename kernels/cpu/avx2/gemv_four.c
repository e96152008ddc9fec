/* gemv_four.c - four rows times coded weights (isa/coded/gemv.h). A file of its own, since the compiler takes seconds over its 18 formats. */
#include "kernels/cpu/isa/coded/gemv.h"

GEMV_OF(4)
