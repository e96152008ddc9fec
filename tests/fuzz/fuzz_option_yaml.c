/* The configuration file as arbitrary bytes: settings or one clear error, and what is printed reads back as the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
    bool flag;
    int64_t count, bytes, time;
    double real;
    const char *text;
    int32_t choice;
    struct qr_str_list list;
};

#define AT(field) offsetof(struct settings, field)
static const struct qr_option table[] = {
    {.name = "flag", .type = QR_OPT_FLAG, .offset = AT(flag), .builtin = "true"},
    {.name = "count", .type = QR_OPT_INT, .offset = AT(count), .builtin = "5", .min = -100, .max = 1e9},
    {.name = "some-bytes", .type = QR_OPT_BYTES, .offset = AT(bytes), .builtin = "1GiB", .max = 0x1p62},
    {.name = "time", .type = QR_OPT_TIME, .offset = AT(time), .builtin = "1s", .max = 0x1p62},
    {.name = "real", .type = QR_OPT_FLOAT, .offset = AT(real), .builtin = "0.5"},
    {.name = "text", .type = QR_OPT_STR, .offset = AT(text)},
    {.name = "choice", .type = QR_OPT_ENUM, .offset = AT(choice), .builtin = "a", .choices = "a|bb|ccc"},
    {.name = "list", .type = QR_OPT_LIST, .offset = AT(list)},
};
#define N_ROWS ((int32_t)(sizeof table / sizeof *table))

/* The settings printed, or NULL with the error when the file is refused. */
static char *read_config(const void *bytes, size_t size, struct qr_err *err)
{
    int fd = memfd_create("config", 0);
    QR_ASSERT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    char flag[64], name[] = "fuzz";
    snprintf(flag, sizeof flag, "--config=/proc/self/fd/%d", fd);
    char *argv[] = {name, flag, NULL};
    struct settings v;
    struct qr_option_set *s = qr_options_new(table, N_ROWS, NULL, &v);
    struct qr_buf b = {0};
    int rc = qr_options_read(s, 2, argv, err);
    QR_ASSERT(rc == 0 || (rc == QR_E_USAGE && err->msg[0]));
    if (!rc)
        qr_options_print(&b, s);
    qr_options_free(s);
    close(fd);
    return rc ? NULL : b.data;
}

/* Comments name sources, which differ; they begin at the last "  # " of a line. */
static void drop_comments(char *text)
{
    char *out = text;
    for (char *line = text; *line;) {
        char *end = strchrnul(line, '\n'), *cut = end;
        for (char *p = line; p + 4 <= end; p++)
            if (memcmp(p, "  # ", 4) == 0)
                cut = p;
        memmove(out, line, (size_t)(cut - line));
        out += cut - line;
        *out++ = '\n';
        line = *end ? end + 1 : end;
    }
    *out = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_err err;
    char *once = read_config(data, size, &err);
    if (!once)
        return 0;
    char *twice = read_config(once, strlen(once), &err);
    if (!twice)
        qr_panic("what was printed is refused: %s\n%s", err.msg, once);
    drop_comments(once);
    drop_comments(twice);
    QR_ASSERT(strcmp(once, twice) == 0);
    free(once);
    free(twice);
    return 0;
}
