#include "base/command.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"

/* Each line of `lines`, indented. */
static void put_lines(struct qr_buf *out, const char *title, const char *lines, int32_t columns)
{
    qr_buf_printf(out, "%s:\n", title);
    for (size_t len; *lines; lines += len + (lines[len] == '\n')) {
        len = strcspn(lines, "\n");
        struct qr_buf line = {0};
        qr_buf_printf(&line, "  %.*s", (int)len, lines);
        qr_options_help_text(out, line.data, columns);
        qr_buf_release(&line);
    }
}

/* The last word of a name: "load" of "bench load". */
static const char *own_name(const struct qr_command *c)
{
    const char *blank = strrchr(c->name, ' ');
    return blank ? blank + 1 : c->name;
}

static void put_group(struct qr_buf *out, const struct qr_command *c, int32_t columns)
{
    qr_buf_put_str(out, "\nCommands:\n");
    for (int32_t i = 0; i < c->n_sub; i++) {
        char head[64];
        snprintf(head, sizeof head, "  quire %s", c->sub[i]->name);
        qr_options_help_entry(out, head, c->sub[i]->purpose, columns);
    }
    qr_buf_printf(out, "\nquire %s COMMAND --help lists a command's options.\n", c->name);
}

void qr_command_help(struct qr_buf *out, const struct qr_command *c, bool brief, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(c != NULL && columns > 0);
    struct qr_buf title = {0};
    qr_buf_printf(&title, "quire %s - %s", c->name, c->purpose);
    qr_options_help_text(out, title.data, columns);
    qr_buf_release(&title);
    qr_buf_put_str(out, brief ? "" : "\n");
    put_lines(out, "Usage", c->usage, columns);
    if (c->sub) {
        put_group(out, c, columns);
        return;
    }
    if (brief) {
        qr_buf_put_str(out, "Options:\n");
        qr_options_help_brief(out, c->table, c->n_options, columns);
        put_lines(out, "Examples", c->examples, columns);
        qr_buf_printf(out, "quire %s --help lists every option.\n", c->name);
        return;
    }
    qr_buf_put_byte(out, '\n');
    put_lines(out, "Examples", c->examples, columns);
    qr_buf_put_byte(out, '\n');
    if (c->text) {
        qr_options_help_text(out, c->text, columns);
        qr_buf_put_byte(out, '\n');
    }
    qr_options_help(out, c->table, c->n_options, c->name, columns);
}

void qr_command_print(const char *text, size_t n)
{
    struct qr_buf seen = {0};
    QR_ASSERT(text != NULL);
    QR_ASSERT(n <= SIZE_MAX / 4);
    qr_buf_put_visible(&seen, text, n);
    if (seen.len > 0)
        fwrite(seen.data, 1, seen.len, stdout);
    qr_buf_release(&seen);
}

int qr_command_fail(const char *name, const struct qr_err *err)
{
    QR_ASSERT(name != NULL);
    QR_ASSERT(err != NULL && err->code < 0);
    fflush(stdout);
    struct qr_buf line = {0};
    qr_buf_printf(&line, "quire %s: ", name);
    qr_buf_put_visible(&line, err->msg, strlen(err->msg));
    qr_buf_put_byte(&line, '\n');
    fwrite(line.data, 1, line.len, stderr);
    qr_buf_release(&line);
    return qr_err_exit_status(err->code);
}

const struct qr_command *qr_command_find(const struct qr_command *const *list, int32_t n, const char *name)
{
    QR_ASSERT(list != NULL && n > 0);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(own_name(list[i]), name) == 0)
            return list[i];
    return NULL;
}

/* argv with flags that have other names made ours; changed texts live in `text`. To be freed. */
static char **rename_flags(const struct qr_command *c, int argc, char **argv, struct qr_buf *text)
{
    char **out = qr_alloc((size_t)argc + 1, sizeof *out);
    size_t room = 1;
    for (int i = 0; i < argc; i++)
        room += strlen(argv[i]) + QR_OPTION_VARIABLE_MAX;
    qr_buf_reserve(text, room); /* the pointers into it must not move */
    for (int i = 0; i < argc; i++) {
        const size_t len = strcspn(argv[i], "="), at = text->len;
        const struct qr_renamed *r = c->renamed, *end = r + c->n_renamed;
        while (r < end && (strlen(r->theirs) != len || memcmp(argv[i], r->theirs, len) != 0))
            r++;
        out[i] = argv[i];
        if (r == end)
            continue;
        qr_buf_printf(text, "%s%s", r->ours, argv[i] + len);
        qr_buf_put_byte(text, '\0');
        out[i] = text->data + at;
    }
    return out;
}

static bool names_config(int argc, char **argv)
{
    bool found = false;
    for (int i = 1; i < argc; i++)
        found = found || strncmp(argv[i], "--config", 8) == 0;
    return found;
}

/* Reads argv by the command's table. Returns -1 to go on, or the exit status: after help, --print-config,
 * --check-config, or an error, which is printed. */
static int read_settings(struct qr_option_set *set, const struct qr_command *c, int argc, char **argv)
{
    struct qr_err err;
    struct qr_buf text = {0};
    int status = 0, rc = qr_options_read(set, argc, argv, &err);
    if (rc == 0 && c->args && !qr_options_wants_help(set))
        rc = qr_options_take_args(set, c->args, &err);
    if (rc != 0) {
        status = qr_command_fail(c->name, &err);
        fprintf(stderr, "See: quire %s --help\n", c->name);
        if (c->config_hint && status == qr_err_exit_status(QR_E_USAGE) && names_config(argc, argv))
            fprintf(stderr, "%s\n", c->config_hint);
    } else if (qr_options_wants_help(set))
        qr_command_help(&text, c, qr_options_wants_brief(set), qr_options_columns());
    else if (qr_options_wants_print(set))
        qr_options_print(&text, set);
    else if (!qr_options_wants_check(set) || c->checks)
        status = -1;
    if (text.len > 0)
        fwrite(text.data, 1, text.len, stdout);
    qr_buf_release(&text);
    return status;
}

int qr_command_main(const struct qr_command *c, int argc, char **argv)
{
    QR_ASSERT(c != NULL && argv != NULL);
    QR_ASSERT(c->run && c->options_bytes > 0);
    struct qr_buf text = {0};
    struct qr_err err = {0};
    struct qr_command_run r = {.options = qr_alloc(c->options_bytes, 1)};
    struct qr_option_set *set = qr_options_new(c->table, c->n_options, c->name, r.options);
    char **args = rename_flags(c, argc, argv, &text);
    int status = read_settings(set, c, argc, args);
    if (status < 0) {
        r.set = set;
        r.n_args = qr_options_args(set, &r.args);
        int rc = c->settle ? c->settle(set, &r, &err) : 0;
        rc = rc ? rc : c->run(&r, &err);
        status = rc != 0 ? qr_command_fail(c->name, &err) : 0;
        status = r.status != 0 ? r.status : status;
    }
    qr_options_free(set);
    qr_free(r.options);
    qr_free(args);
    qr_buf_release(&text);
    return status;
}
