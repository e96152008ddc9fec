/* session.c - a conversation: messages, the request body, the file (see session.h). A file is written beside its name
 * and renamed, so that an interrupted save leaves the old one. A torn last line costs that line only. Everything from a
 * file is checked before it becomes a message. One owning thread. */
#include "client/session.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

static const char *const role_names[] = {"system", "user", "assistant"};

const char *qr_role_name(enum qr_role role)
{
    QR_ASSERT((int)role >= 0);
    QR_ASSERT((int)role < QR_COUNT(role_names));
    return role_names[role];
}

static void drop_from(struct qr_session *s, int32_t first)
{
    for (int32_t i = first; i < s->n; i++)
        qr_free(s->message[i].text);
    s->n = first < s->n ? first : s->n;
}

void qr_session_release(struct qr_session *s)
{
    drop_from(s, 0);
    qr_free(s->message);
    *s = (struct qr_session){0};
}

static void insert(struct qr_session *s, int32_t at, enum qr_role role, const char *text, size_t len, bool stopped)
{
    if (s->n == s->cap) {
        s->cap = s->cap < 16 ? 16 : s->cap * 2;
        s->message = qr_realloc(s->message, (size_t)s->cap, sizeof *s->message);
    }
    memmove(s->message + at + 1, s->message + at, (size_t)(s->n - at) * sizeof *s->message);
    s->message[at] = (struct qr_message){.role = role, .stopped = stopped, .text = qr_alloc(len + 1, 1), .len = len};
    memcpy(s->message[at].text, text, len);
    s->n++;
}

void qr_session_add(struct qr_session *s, enum qr_role role, const char *text, size_t len, bool stopped)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(text != NULL);
    insert(s, s->n, role, text, len, stopped);
}

static bool has_system(const struct qr_session *s)
{
    return s->n > 0 && s->message[0].role == QR_ROLE_SYSTEM;
}

void qr_session_set_system(struct qr_session *s, const char *text)
{
    QR_ASSERT(s != NULL);
    if (has_system(s)) {
        qr_free(s->message[0].text);
        memmove(s->message, s->message + 1, (size_t)(s->n - 1) * sizeof *s->message);
        s->n--;
    }
    if (text != NULL && text[0] != '\0')
        insert(s, 0, QR_ROLE_SYSTEM, text, strlen(text), false);
}

const char *qr_session_system(const struct qr_session *s)
{
    QR_ASSERT(s != NULL);
    return has_system(s) ? s->message[0].text : NULL;
}

void qr_session_clear(struct qr_session *s)
{
    QR_ASSERT(s != NULL);
    drop_from(s, has_system(s) ? 1 : 0);
}

static int32_t last_of(const struct qr_session *s, enum qr_role role)
{
    int32_t i = s->n - 1;
    while (i >= 0 && s->message[i].role != role)
        i--;
    return i;
}

bool qr_session_undo(struct qr_session *s)
{
    QR_ASSERT(s != NULL);
    int32_t i = last_of(s, QR_ROLE_USER);
    if (i >= 0)
        drop_from(s, i);
    return i >= 0;
}

const struct qr_message *qr_session_last(const struct qr_session *s, enum qr_role role)
{
    QR_ASSERT(s != NULL);
    int32_t i = last_of(s, role);
    return i >= 0 ? &s->message[i] : NULL;
}

bool qr_session_rewind_to_user(struct qr_session *s)
{
    QR_ASSERT(s != NULL);
    int32_t i = last_of(s, QR_ROLE_USER);
    if (i >= 0)
        drop_from(s, i + 1);
    return i >= 0;
}

void qr_session_body(struct qr_buf *out, const struct qr_session *s, const char *model, const struct qr_chat_params *p, bool stream)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL && model != NULL && p != NULL);
    qr_buf_put_str(out, "{\"model\":");
    qr_json_put_str(out, model, strlen(model));
    qr_buf_put_str(out, ",\"messages\":[");
    for (int32_t i = 0; i < s->n; i++) {
        qr_buf_printf(out, "%s{\"role\":\"%s\",\"content\":", i > 0 ? "," : "", qr_role_name(s->message[i].role));
        qr_json_put_str(out, s->message[i].text, s->message[i].len);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_byte(out, ']');
    qr_chat_params_put(out, p);
    qr_buf_put_str(out, stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}" : "}");
}

/* ---- files ---- */

int qr_session_save(const struct qr_session *s, const char *path, struct qr_err *err)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(path != NULL);
    struct qr_buf text = {0};
    for (int32_t i = 0; i < s->n; i++) {
        qr_buf_printf(&text, "{\"role\":\"%s\",\"content\":", qr_role_name(s->message[i].role));
        qr_json_put_str(&text, s->message[i].text, s->message[i].len);
        qr_buf_put_str(&text, s->message[i].stopped ? ",\"stopped\":true}\n" : "}\n");
    }
    const int rc = qr_file_replace_private(path, text.data, text.len, err);
    qr_buf_release(&text);
    return rc;
}

static int take_line(struct qr_session *s, const char *line, size_t n, struct qr_err *err)
{
    struct qr_json *doc = NULL;
    int rc = qr_json_parse(&doc, line, n, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    const struct qr_json *role = qr_json_find(doc, "role"), *content = qr_json_find(doc, "content");
    const struct qr_json *stopped = qr_json_find(doc, "stopped");
    int which = -1;
    if (role != NULL && content != NULL && qr_json_type(role) == QR_JSON_T_STRING && qr_json_type(content) == QR_JSON_T_STRING)
        for (int i = 0; i < QR_COUNT(role_names); i++)
            if (strcmp(qr_json_str(role, NULL), role_names[i]) == 0)
                which = i;
    if (which < 0 || (which == QR_ROLE_SYSTEM && s->n > 0))
        rc = qr_err_set(err, QR_E_DAMAGED, "expected {\"role\": \"user\" or \"assistant\" (\"system\" first), \"content\": TEXT}");
    else {
        size_t len;
        const char *text = qr_json_str(content, &len);
        bool cut = stopped != NULL && qr_json_type(stopped) == QR_JSON_T_BOOL && qr_json_bool(stopped);
        qr_session_add(s, (enum qr_role)which, text, len, cut);
    }
    qr_json_free(doc);
    return rc;
}

int qr_session_load(struct qr_session *s, const char *path, struct qr_err *err)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(path != NULL);
    struct qr_buf text = {0};
    struct qr_session loaded = {0};
    int rc = qr_file_read(&text, path, QR_FILE_ANY, 64 << 20, err), n_line = 0;
    for (size_t at = 0; rc == 0 && at < text.len;) {
        const char *line = text.data + at, *eol = memchr(line, '\n', text.len - at);
        size_t n = eol != NULL ? (size_t)(eol - line) : text.len - at;
        n_line++;
        if (n > 0)
            rc = take_line(&loaded, line, n, err);
        if (rc != 0)
            rc = qr_err_prefix(err, "%s, line %d: ", path, n_line);
        at += n + 1;
    }
    qr_buf_release(&text);
    if (rc != 0) {
        qr_session_release(&loaded);
        return rc;
    }
    qr_session_release(s);
    *s = loaded;
    return 0;
}
