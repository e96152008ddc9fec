/* variables.c - variables QUIRE_* that set nothing though they look as if they did: misspelt ones, and those that lack the command's name. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cli/cli.h"

extern char **environ;

/* What is read beside settings, by the program or its tests; and, in the last row, what Kubernetes sets for a Service whose name begins with quire. */
static const char *const others[] = {
    "QUIRE_CONFIG", "QUIRE_CUDA_*", "QUIRE_MPI_LIB", "QUIRE_NCCL_LIB",
    "QUIRE_BIN", "QUIRE_DATA", "QUIRE_DISCRETE_*", "QUIRE_EMU_*", "QUIRE_FULL", "QUIRE_FUZZ_*", "QUIRE_GPU_*", "QUIRE_TEST_*",
    "QUIRE_*SERVICE_*", "QUIRE_*PORT_*",
};

struct look {
    const struct qr_command *command;
    const struct qr_option *row, *serve; /* [n], [n_serve] */
    int32_t n, n_serve;
};

static bool is_serve(const struct look *l)
{
    return l->row == l->serve;
}

/* The row that `name`, of n bytes, is the variable of. */
static const struct qr_option *row_of(const struct qr_option *row, int32_t n_rows, const char *command, const char *name, size_t n)
{
    char variable[QR_OPTION_VARIABLE_MAX];
    for (int32_t i = 0; i < n_rows; i++) {
        qr_options_variable(variable, command, row[i].name);
        if (strlen(variable) == n && memcmp(variable, name, n) == 0)
            return &row[i];
    }
    return NULL;
}

/* Whether `name` is meant elsewhere: a variable of the program, or of another command than serve, whose variables all
 * begin alike. */
static bool is_known(const char *name)
{
    char prefix[QR_OPTION_VARIABLE_MAX];
    for (int i = 0; i < QR_COUNT(others); i++)
        if (fnmatch(others[i], name, 0) == 0)
            return true;
    for (int32_t i = 0; i < qr_cli_n_commands; i++) {
        qr_options_variable(prefix, qr_cli_commands[i]->name, "");
        if (strcmp(qr_cli_commands[i]->name, "serve") != 0 && strncmp(name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

static void warn_misspelt(const struct look *l, const char *name, const char *rest)
{
    const char **known = qr_alloc((size_t)l->n, sizeof *known), *near;
    char variable[QR_OPTION_VARIABLE_MAX] = "";
    for (int32_t i = 0; i < l->n; i++)
        known[i] = l->row[i].name;
    near = qr_nearest(is_serve(l) && strncmp(rest, "SERVE_", 6) == 0 ? rest + 6 : rest, known, l->n);
    if (near)
        qr_options_variable(variable, l->command->name, near);
    fprintf(stderr, "quire %s: warning: the variable %s is not a setting%s%s%s\n", l->command->name, name, near ? "; did you mean " : "", variable,
            near ? "?" : "");
    qr_free(known);
}

/* Variables that begin as this command's do. */
static void look_at_own(const struct look *l)
{
    char prefix[QR_OPTION_VARIABLE_MAX];
    qr_options_variable(prefix, l->command->name, "");
    for (char **e = environ; *e; e++) {
        const size_t n = strcspn(*e, "=");
        if (strncmp(*e, prefix, strlen(prefix)) != 0 || (*e)[n] == 0 || (*e)[n + 1] == 0 || row_of(l->row, l->n, l->command->name, *e, n))
            continue;
        char *name = qr_strdup(*e);
        name[n] = 0;
        if (!is_serve(l) || (!is_known(name) && strncmp(name + n + 1, "tcp://", 6) != 0))
            warn_misspelt(l, name, name + strlen(prefix));
        qr_free(name);
    }
}

/* Variables of this command's settings without its name. Those that serve has are meant for it. */
static void look_at_short(const struct look *l)
{
    char name[QR_OPTION_VARIABLE_MAX], whole[QR_OPTION_VARIABLE_MAX];
    for (int32_t i = 0; i < l->n; i++) {
        qr_options_variable(name, NULL, l->row[i].name);
        const char *value = getenv(name);
        if (!value || !*value || row_of(l->serve, l->n_serve, NULL, name, strlen(name)))
            continue;
        qr_options_variable(whole, l->command->name, l->row[i].name);
        fprintf(stderr, "quire %s: warning: the variable %s has no effect here; did you mean %s?\n", l->command->name, name, whole);
    }
}

void qr_cli_warn_variables(const struct qr_command *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->table != NULL || c->n_options == 0);
    struct look l = {.command = c, .row = c->table, .n = c->n_options};
    if (c->sub)
        return;
#ifdef QUIRE_SERVER
    l.serve = qr_cmd_serve.table;
    l.n_serve = qr_cmd_serve.n_options;
#endif
    if (!is_serve(&l))
        look_at_short(&l);
    look_at_own(&l);
}
