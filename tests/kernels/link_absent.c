/* The kernels linked without some levels (cmake/isa.cmake, quire_absent_levels): that it links is the test; the reference level, always there, must open. */
#include <stdio.h>

#include "kernels/backend.h"

int main(void)
{
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    if (qr_backend_open(&be, &(struct qr_backend_options){.isa = "ref", .n_threads = 1}, &err) != 0) {
        printf("FAIL level ref did not open: %s\n0 passed, 1 failed\n", err.msg);
        return 1;
    }
    printf("PASS linked without some levels, and level %s opens\n", be->k->name);
    qr_backend_close(be);
    return 0;
}
