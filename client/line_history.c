/* line_history.c - typed lines in a file, appended and read again (line_history.h). */
#include "client/line_history.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)

void qr_state_path(struct qr_buf *out, const char *name)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(name != NULL);
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state != NULL && state[0] == '/')
        qr_buf_put_str(out, state);
    else if (home != NULL && home[0] == '/')
        qr_buf_printf(out, "%s/.local/state", home);
    else
        return;
    qr_buf_printf(out, "/quire/%s", name);
    for (char *slash = strchr(out->data + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(out->data, 0700);
        *slash = '/';
    }
}

static void escape(struct qr_buf *out, const char *line)
{
    for (; *line != '\0'; line++)
        if (*line == '\n')
            qr_buf_put_str(out, "\\n");
        else if (*line == '\\')
            qr_buf_put_str(out, "\\\\");
        else
            qr_buf_put_byte(out, *line);
    qr_buf_put_byte(out, '\n');
}

/* Returns a copy of one stored line, owned by the caller. */
static char *unescape(const char *s, size_t n)
{
    char *line = qr_alloc(n + 1, 1), *to = line;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\' && i + 1 < n)
            *to++ = s[++i] == 'n' ? '\n' : s[i];
        else if (s[i] != '\0')
            *to++ = s[i];
    }
    *to = '\0';
    return line;
}

static void keep(struct qr_line_history *h, char *line)
{
    if (h->n == h->cap) {
        h->cap = h->cap < 64 ? 64 : h->cap * 2;
        h->line = qr_realloc(h->line, (size_t)h->cap, sizeof *h->line);
    }
    h->line[h->n++] = line;
}

/* Keeps the newest lines, of the number and the bytes that there may be, or half of both (a line without room is
 * skipped), and writes the file anew. */
static void cut_back(struct qr_line_history *h, bool half)
{
    const int32_t n_max = half ? QR_HISTORY_MAX / 2 : QR_HISTORY_MAX;
    size_t room = half ? FILE_BYTES_MAX / 2 : FILE_BYTES_MAX;
    int32_t to = h->n;
    for (int32_t i = h->n - 1; i >= 0; i--) {
        const size_t n = strlen(h->line[i]);
        if (h->n - to < n_max && n < room) {
            room -= n;
            h->line[--to] = h->line[i];
        } else {
            qr_free(h->line[i]);
        }
    }
    memmove(h->line, h->line + to, (size_t)(h->n - to) * sizeof *h->line);
    h->n -= to;
    struct qr_buf text = {0};
    struct qr_err err;
    for (int32_t i = 0; i < h->n; i++)
        escape(&text, h->line[i]);
    (void)qr_file_replace_private(h->path, text.data, text.len, &err); /* else it stays as it was */
    qr_buf_release(&text);
}

/* The end of a file, whole lines of it. Returns whether the file is longer than that. torn: its last line was cut off by a crash or a full disk. */
static bool read_end(struct qr_line_history *h, const char *path, bool *torn)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    const bool there = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0, longer = there && (size_t)st.st_size > FILE_BYTES_MAX;
    const size_t room = !there ? 0 : longer ? FILE_BYTES_MAX : (size_t)st.st_size;
    char *text = qr_alloc(room + 1, 1);
    const ssize_t got = there ? pread(fd, text, room, longer ? st.st_size - (off_t)room : 0) : 0;
    const size_t len = got > 0 ? (size_t)got : 0;
    size_t at = longer && len > 0 ? strcspn(text, "\n") + 1 : 0;
    if (fd >= 0)
        close(fd);
    for (const char *eol; at < len && (eol = memchr(text + at, '\n', len - at)) != NULL;) {
        const size_t n = (size_t)(eol - text) - at;
        if (n > 0)
            keep(h, unescape(text + at, n));
        at += n + 1;
    }
    qr_free(text);
    *torn = at < len;
    return longer;
}

void qr_history_open(struct qr_line_history *h, const char *path)
{
    QR_ASSERT(h != NULL);
    *h = (struct qr_line_history){0};
    if (path == NULL || path[0] == '\0')
        return;
    h->path = qr_strdup(path);
    bool torn;
    const bool longer = read_end(h, path, &torn), half = longer || h->n > QR_HISTORY_MAX;
    if (half || torn)
        cut_back(h, half);
}

void qr_history_close(struct qr_line_history *h)
{
    QR_ASSERT(h != NULL);
    for (int32_t i = 0; i < h->n; i++)
        qr_free(h->line[i]);
    qr_free(h->line);
    qr_free(h->path);
    *h = (struct qr_line_history){0};
}

bool qr_history_add(struct qr_line_history *h, const char *line)
{
    QR_ASSERT(h != NULL);
    QR_ASSERT(line != NULL);
    if (line[0] == '\0' || (h->n > 0 && strcmp(h->line[h->n - 1], line) == 0))
        return false;
    keep(h, qr_strdup(line));
    int fd = h->path != NULL ? open(h->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return true;
    struct qr_buf text = {0};
    escape(&text, line);
    if (write(fd, text.data, text.len) != (ssize_t)text.len)
        h->path[0] = '\0'; /* a full disk is not asked again at every line */
    qr_buf_release(&text);
    close(fd);
    return true;
}
