#include "bench/command.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/buf.h"

int qr_bench_command_main(const struct qr_bench_command *c, void *options, int argc, char **argv)
{
    QR_ASSERT(c != NULL && c->run != NULL);
    QR_ASSERT(options != NULL && argv != NULL);
    struct qr_err err = {0};
    struct qr_buf text = {0};
    struct qr_option_set *set = qr_options_new(c->table, c->n_options, options);
    const char *const *args;
    int status = 0, rc = qr_options_read(set, argc, argv, &err);
    if (rc == 0)
        rc = qr_options_take_arg(set, "model", &err);
    if (rc == 0 && qr_options_args(set, &args) > 0)
        rc = qr_err_set(&err, QR_E_USAGE, "unexpected argument \"%s\"; see quire bench %s --help", args[0], c->name);
    if (rc == 0 && qr_options_wants_help(set)) {
        qr_options_help_text(&text, c->usage, qr_options_columns());
        qr_buf_put_byte(&text, '\n');
        qr_options_help(&text, c->table, c->n_options, qr_options_columns());
    } else if (rc == 0 && qr_options_wants_print(set)) {
        qr_options_print(&text, set);
    } else if (rc == 0 && !qr_options_wants_check(set)) {
        rc = c->run(options, &status, &err);
    }
    if (text.len > 0)
        fwrite(text.data, 1, text.len, stdout);
    if (rc != 0)
        fprintf(stderr, "quire bench %s: %s\n", c->name, err.msg);
    qr_buf_release(&text);
    qr_options_free(set);
    return rc != 0 && status == 0 ? qr_err_exit_status((enum qr_code)rc) : status;
}
