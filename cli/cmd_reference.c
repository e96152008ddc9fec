/* cmd_reference.c - `quire reference DIR`: writes manual pages, completions, the options' reference and schemas of settings into a directory, as packages
 * install them. Files are replaced. Main thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/reference.h"
#include "train/config.h"
#ifdef QUIRE_SERVER
#include "server/error_index.h"
#include "server/openapi.h"
#endif

const struct qr_reference_flag qr_reference_common[] = {
    {"config", "FILE", "Read settings from a YAML file. Flags win over the environment, the environment over the file."},
    {"print-config", NULL, "Print every setting with its source, as a configuration file, and exit."},
    {"check-config", NULL, "Check the settings and exit."},
    {"help", NULL, "Print all options and exit; -h prints the most used ones."},
    {0},
};

void qr_reference_each(void (*each)(void *user, const struct qr_command *c), void *user)
{
    QR_ASSERT(each != NULL);
    QR_ASSERT(qr_cli_n_commands > 0);
    for (int32_t i = 0; i < qr_cli_n_commands; i++) {
        const struct qr_command *c = qr_cli_commands[i];
        if (!c->sub)
            each(user, c);
        for (int32_t k = 0; k < c->n_sub; k++)
            each(user, c->sub[k]);
    }
}

struct reference_options {
    const char *out;
};

struct writing {
    const char *dir;
    struct qr_err *err;
    int rc; /* of the first file that could not be written */
    int32_t n_files;
};

static void make_dir(struct writing *w, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s%s%s", w->dir, *name ? "/" : "", name);
    if (w->rc == 0 && mkdir(path, 0755) != 0 && errno != EEXIST)
        w->rc = qr_err_set(w->err, QR_E_IO, "cannot make the directory '%.300s': %s", path, strerror(errno));
}

/* The buffer becomes a file, and is empty again. */
static void write_file(struct writing *w, const char *name, struct qr_buf *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    FILE *f = w->rc == 0 ? fopen(path, "w") : NULL;
    const bool written = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (w->rc == 0 && (!f || fclose(f) != 0 || !written))
        w->rc = qr_err_set(w->err, QR_E_IO, "cannot write '%.300s': %s", path, strerror(errno));
    w->n_files += w->rc == 0;
    qr_buf_release(text);
}

static void write_man(void *user, const struct qr_command *c)
{
    char name[128];
    struct qr_buf text = {0};
    snprintf(name, sizeof name, "man1/quire-%s.1", c->name);
    for (char *p = name; *p; p++)
        *p = *p == ' ' ? '-' : *p;
    qr_reference_man(&text, c);
    write_file(user, name, &text);
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    static const struct {
        const char *name;
        void (*put)(struct qr_buf *out);
    } file[] = {{"completions/quire", qr_reference_bash}, {"completions/_quire", qr_reference_zsh}, {"completions/quire.fish", qr_reference_fish},
                {"options.md", qr_reference_options},
#ifdef QUIRE_SERVER
                {"errors.md", qr_error_rows_put_markdown}, {"openapi.json", qr_openapi_put},
#endif
    };
    const struct reference_options *o = r->options;
    struct writing w = {.dir = o->out, .err = err};
    struct qr_buf text = {0};
    int32_t n;
    if (!o->out)
        return qr_err_set(err, QR_E_USAGE, "no directory named: expected quire reference DIR");
    if (strlen(o->out) > 4000)
        return qr_err_set(err, QR_E_USAGE, "the directory's name has %zu bytes; at most 4000", strlen(o->out));
    make_dir(&w, "");
    make_dir(&w, "man1");
    make_dir(&w, "completions");
    qr_reference_man(&text, NULL);
    write_file(&w, "man1/quire.1", &text);
    qr_reference_each(write_man, &w);
    for (int i = 0; i < QR_COUNT(file); i++) {
        file[i].put(&text);
        write_file(&w, file[i].name, &text);
    }
    qr_reference_schema(&text, "quire serve --config", qr_cmd_serve.table, qr_cmd_serve.n_options);
    write_file(&w, "server.schema.json", &text);
    const struct qr_option *train = qr_train_config_table(&n);
    qr_reference_schema(&text, "quire train CONFIG.yaml", train, n);
    write_file(&w, "train.schema.json", &text);
    if (w.rc == 0)
        printf("%d files in %s\n", w.n_files, o->out);
    return w.rc;
}

static const struct qr_option table[] = {
    {.name = "out", .type = QR_OPT_STR, .offset = offsetof(struct reference_options, out), .arg = "DIR", .group = "Output", .brief = true,
     .help = "Directory to write into; made where it does not exist. May be given without the flag."}};

const struct qr_command qr_cmd_reference = {
    .name = "reference", .purpose = "write manual pages, completions, the options' reference",
    .usage = "quire reference DIR",
    .examples = "quire reference /tmp/q; man /tmp/q/man1/quire-serve.1\n"
                "quire reference /tmp/q; source /tmp/q/completions/quire",
    .text = "Writes into DIR what is made from tables: man1/*.1, completions/ for bash, zsh and fish, options.md, errors.md, openapi.json, and\n"
            "JSON Schemas of server.yaml and of training's settings, for editors.",
    .args = "out", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct reference_options), .run = run,
};
