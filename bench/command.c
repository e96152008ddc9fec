#include "bench/command.h"

#include "base/assert.h"

int qr_bench_command_main(const struct qr_command *c, int (*run)(const void *options, int *status, struct qr_err *err), void *options, int argc,
                          char **argv)
{
    QR_ASSERT(c != NULL && run != NULL);
    QR_ASSERT(options != NULL && argv != NULL);
    struct qr_err err = {0};
    struct qr_option_set *set;
    int status = qr_command_read(&set, c, options, argc, argv);
    if (status >= 0)
        return status;
    status = 0;
    const int rc = run(options, &status, &err);
    const int failed = rc != 0 ? qr_command_fail(c->name, &err) : 0;
    qr_options_free(set);
    return status != 0 ? status : failed;
}
