/* The reference kernels in double, once for all test programs (see oracle.h). */
#include "tests/kernels/oracle.h"

#include "kernels/ref/ref_adapt.c"
#include "kernels/ref/ref_attention.c"
#include "kernels/ref/ref_experts.c"
#include "kernels/ref/ref_linear.c"
#include "kernels/ref/ref_rows.c"
#include "kernels/ref/ref_table.c"
