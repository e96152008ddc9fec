/* coded_few_one.c - one row times coded weights (isa/coded_few.h). A file of its own, since the compiler takes seconds over its 18 formats. */
#include "kernels/cpu/isa/coded/few.h"

FEW_OF(1)
