/* The reference kernels and their gradients with nothing but f64, once for all test programs (see wide_oracle.h). */
#include "tests/kernels/wide_oracle.h"

#include "kernels/ref/ref_adapt.c"
#include "kernels/ref/ref_attention.c"
#include "kernels/ref/ref_experts.c"
#include "kernels/ref/ref_back_attention.c"
#include "kernels/ref/ref_back_linear.c"
#include "kernels/ref/ref_back_rows.c"
#include "kernels/ref/ref_back_table.c"
#include "kernels/ref/ref_linear.c"
#include "kernels/ref/ref_optim.c"
#include "kernels/ref/ref_rows.c"
#include "kernels/ref/ref_table.c"
