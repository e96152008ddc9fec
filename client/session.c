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

static const char *const role_names[] = {"system", "user", "assistant", "tool"};

const char *qr_role_name(enum qr_role role)
{
    QR_ASSERT((int)role >= 0);
    QR_ASSERT((int)role < QR_COUNT(role_names));
    return role_names[role];
}

static void drop_from(struct qr_session *s, int32_t first)
{
    for (int32_t i = first; i < s->n; i++) {
        qr_free(s->message[i].text);
        qr_free(s->message[i].more);
    }
    s->n = first < s->n ? first : s->n;
}

void qr_session_release(struct qr_session *s)
{
    drop_from(s, 0);
    qr_free(s->message);
    *s = (struct qr_session){0};
}

static void make_room(struct qr_session *s)
{
    if (s->n == s->cap) {
        s->cap = s->cap < 16 ? 16 : s->cap * 2;
        s->message = qr_realloc(s->message, (size_t)s->cap, sizeof *s->message);
    }
}

static void insert(struct qr_session *s, int32_t at, enum qr_role role, const char *text, size_t len, bool stopped)
{
    make_room(s);
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

void qr_session_set_more(struct qr_session *s, const char *more)
{
    QR_ASSERT(s != NULL && s->n > 0);
    QR_ASSERT(more != NULL && s->message[s->n - 1].more == NULL);
    s->message[s->n - 1].more = qr_strdup(more);
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

bool qr_session_rewind_to_user(struct qr_session *s, struct qr_session *to)
{
    QR_ASSERT(s != NULL);
    int32_t i = last_of(s, QR_ROLE_USER);
    if (i >= 0)
        qr_session_move(to, s, i + 1);
    return i >= 0;
}

void qr_session_move(struct qr_session *s, struct qr_session *from, int32_t first)
{
    QR_ASSERT(s != NULL && from != NULL && s != from);
    QR_ASSERT(first >= 0 && first <= from->n);
    for (int32_t i = first; i < from->n; i++) {
        make_room(s);
        s->message[s->n++] = from->message[i];
    }
    from->n = first;
}

/* {"role":..,"content":.., as far as a request has it; the brace is left open. */
static void put_message(struct qr_buf *out, const struct qr_message *m)
{
    qr_buf_printf(out, "{\"role\":\"%s\",\"content\":", qr_role_name(m->role));
    qr_json_put_str(out, m->text, m->len);
    if (m->more != NULL) {
        qr_buf_put_byte(out, ',');
        qr_buf_put_str(out, m->more);
    }
}

void qr_session_body(struct qr_buf *out, const struct qr_session *s, const char *model, const struct qr_chat_params *p, const char *more,
                     bool stream)
{
    QR_ASSERT(out != NULL && more != NULL);
    QR_ASSERT(s != NULL && model != NULL && p != NULL);
    qr_buf_put_str(out, "{\"model\":");
    qr_json_put_str(out, model, strlen(model));
    qr_buf_put_str(out, ",\"messages\":[");
    for (int32_t i = 0; i < s->n; i++) {
        qr_buf_put_str(out, i > 0 ? "," : "");
        put_message(out, &s->message[i]);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_byte(out, ']');
    qr_chat_params_put(out, p);
    qr_buf_put_str(out, more);
    qr_buf_put_str(out, stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}" : "}");
}

/* ---- files ---- */

int qr_session_save(const struct qr_session *s, const char *path, struct qr_err *err)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(path != NULL);
    struct qr_buf text = {0};
    for (int32_t i = 0; i < s->n; i++) {
        put_message(&text, &s->message[i]);
        qr_buf_put_str(&text, s->message[i].stopped ? ",\"stopped\":true}\n" : "}\n");
    }
    const int rc = qr_file_replace_private(path, text.data, text.len, err);
    qr_buf_release(&text);
    return rc;
}

/* What a message has beside role and content, as it was saved. False when the role needs what is not there. */
static bool take_more(struct qr_buf *more, enum qr_role role, const struct qr_json *doc)
{
    static const struct {
        const char *name;
        enum qr_role role;
        enum qr_json_type type;
    } members[] = {{"tool_calls", QR_ROLE_ASSISTANT, QR_JSON_T_ARRAY},
                   {"reasoning_content", QR_ROLE_ASSISTANT, QR_JSON_T_STRING},
                   {"tool_call_id", QR_ROLE_TOOL, QR_JSON_T_STRING}};
    for (int i = 0; i < QR_COUNT(members); i++) {
        const struct qr_json *v = qr_json_find(doc, members[i].name);
        if (role != members[i].role || v == NULL || qr_json_type(v) != members[i].type)
            continue;
        qr_buf_printf(more, "%s\"%s\":", more->len > 0 ? "," : "", members[i].name);
        qr_json_print(more, v);
    }
    return role != QR_ROLE_TOOL || more->len > 0;
}

static int take_line(struct qr_session *s, const char *line, size_t n, struct qr_err *err)
{
    struct qr_json *doc = NULL;
    int rc = qr_json_parse(&doc, line, n, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    const struct qr_json *role = qr_json_find(doc, "role"), *content = qr_json_find(doc, "content");
    const struct qr_json *stopped = qr_json_find(doc, "stopped");
    struct qr_buf more = {0};
    int which = -1;
    if (content != NULL && qr_json_type(content) == QR_JSON_T_STRING)
        for (int i = 0; i < QR_COUNT(role_names); i++)
            if (qr_json_says(role, role_names[i]))
                which = i;
    if (which < 0 || (which == QR_ROLE_SYSTEM && s->n > 0) || !take_more(&more, (enum qr_role)which, doc))
        rc = qr_err_set(err, QR_E_DAMAGED, "expected {\"role\": \"user\", \"assistant\" or \"tool\" (\"system\" first), \"content\": TEXT}, with a "
                                           "\"tool_call_id\" for a tool");
    else {
        size_t len;
        const char *text = qr_json_str(content, &len);
        bool cut = stopped != NULL && qr_json_type(stopped) == QR_JSON_T_BOOL && qr_json_bool(stopped);
        qr_session_add(s, (enum qr_role)which, text, len, cut);
        if (more.len > 0)
            qr_session_set_more(s, more.data);
    }
    qr_buf_release(&more);
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
