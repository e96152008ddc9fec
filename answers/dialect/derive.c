/* derive.c - a dialect from a chat template: the same small conversation is rendered with one thing changed, and what
 * changed is compared. This file finds where the answer begins, the markers of reasoning and of content, and which
 * templates do not tell; derive_calls.c takes a call apart. Pure. */
#include <stdio.h>

#include "answers/dialect/derive.h"

/* ---- slices ---- */

struct qr_slice qr_slice_trim(struct qr_slice s)
{
    const size_t from = qr_blanks(s.s, s.n);
    while (s.n > from && qr_is_blank(s.s[s.n - 1]))
        s.n--;
    return (struct qr_slice){s.s + from, s.n - from};
}

const char *qr_keep_slice(struct qr_dialect *d, struct qr_slice s)
{
    return s.n ? qr_dialect_keep(d, s.s, s.n) : "";
}

const char *qr_skip_thought(const struct qr_dialect *d, const char *s, const char *end)
{
    const char *start = qr_text_of(d->think_start), *stop = qr_text_of(d->think_end);
    s += qr_blanks(s, (size_t)(end - s));
    if (!*stop)
        return s;
    const char *close = strstr(s, stop);
    const bool opens = *start && strncmp(s, start, strlen(start)) == 0;
    if (close && close < end && (opens || close == s)) {
        s = close + strlen(stop);
        s += qr_blanks(s, (size_t)(end - s));
    }
    return s;
}

/* ---- reasoning ---- */

static bool set_thinking(struct qr_deriving *v, struct qr_slice start, struct qr_slice label, struct qr_slice end)
{
    struct qr_dialect *d = v->d;
    d->think_start = qr_keep_slice(d, start);
    d->think_label = qr_keep_slice(d, label);
    d->think_end = qr_keep_slice(d, end);
    return true;
}

/* The end of the marker that begins at s, or NULL. */
static const char *marker_end(const char *s)
{
    static const char *const closers[][2] = {{"<", ">"}, {"[", "]"}, {"◁", "▷"}};
    for (int i = 0; i < QR_COUNT(closers); i++)
        if (strncmp(s, closers[i][0], strlen(closers[i][0])) == 0) {
            const char *close = strstr(s, closers[i][1]);
            return close && close - s < 48 && !memchr(s, '\n', (size_t)(close - s)) ? close + strlen(closers[i][1]) : NULL;
        }
    return NULL;
}

/* Whether answers without reasoning begin with the marker, too, and are not closed by `end`: it opens the turn. */
static bool opens_any_answer(const struct qr_deriving *v, struct qr_slice start, struct qr_slice end)
{
    const char *user = v->answer ? strstr(v->answer, QR_PROBE_USER) : NULL, *text = user ? strstr(user, QR_PROBE_TEXT) : NULL;
    const char *at = text ? memmem(user, (size_t)(text - user), start.s, start.n) : NULL;
    return at && !memmem(at, (size_t)(text - at), end.s, end.n);
}

/* Reasoning that the template shows between markers. */
static bool thinking_shown(struct qr_deriving *v, const char *text)
{
    const char *user = text ? strstr(text, QR_PROBE_USER) : NULL, *t = user ? strstr(user, QR_PROBE_THOUGHT) : NULL;
    if (!t)
        return false;
    const char *after = t + strlen(QR_PROBE_THOUGHT);
    after += qr_blanks(after, strlen(after));
    const char *stop = marker_end(after);
    for (const char *m = t - 1; stop && m > user && t - m < 64; m--) {
        const char *close = marker_end(m);
        if (!close || close > t)
            continue;
        struct qr_slice start = {m, (size_t)(close - m)}, label = qr_slice_trim((struct qr_slice){close, (size_t)(t - close)});
        if (label.n && (label.s > close || memchr(label.s, ' ', label.n))) { /* a sentence is the marker, not what belongs to one */
            start = label;
            label.n = 0;
        }
        label.n = label.n ? (size_t)(t - label.s) : 0;
        if (opens_any_answer(v, start, (struct qr_slice){after, (size_t)(stop - after)}))
            return false;
        return set_thinking(v, start, label, (struct qr_slice){after, (size_t)(stop - after)});
    }
    return false;
}

static bool set_pair(struct qr_deriving *v, int32_t i)
{
    return set_thinking(v, (struct qr_slice){qr_think_pairs[i][0], strlen(qr_think_pairs[i][0])}, (struct qr_slice){"", 0},
                        (struct qr_slice){qr_think_pairs[i][1], strlen(qr_think_pairs[i][1])});
}

static bool ends_with(const char *s, size_t n, const char *what)
{
    const size_t m = strlen(what);
    return m > 0 && n >= m && memcmp(s + n - m, what, m) == 0;
}

/* A prompt that ends in one of the usual markers: it begins reasoning, or has closed it. */
static bool thinking_prompted(struct qr_deriving *v, const char *prompt)
{
    if (!prompt)
        return false;
    const struct qr_slice p = qr_slice_trim((struct qr_slice){prompt, strlen(prompt)});
    for (int32_t i = 0; i < qr_think_n_pairs; i++)
        if (ends_with(p.s, p.n, qr_think_pairs[i][0]) || ends_with(p.s, p.n, qr_think_pairs[i][1]))
            return set_pair(v, i);
    return false;
}

/* Reasoning in earlier turns that the template takes out, or usual markers that it writes. */
static bool thinking_known(struct qr_deriving *v)
{
    static const char next[] = "{\"role\":\"user\",\"content\":\"qrnext\"}";
    for (int32_t i = 0; i < qr_think_n_pairs; i++) {
        char message[256];
        snprintf(message, sizeof message, "{\"role\":\"assistant\",\"content\":\"%s" QR_PROBE_THOUGHT "%s" QR_PROBE_TEXT "\"}", qr_think_pairs[i][0],
                 qr_think_pairs[i][1]);
        char *history = qr_probe_render(&v->p, message, next, false, QR_PROBE_THINK_UNSAID);
        const char *written = v->answer ? strstr(v->answer, qr_think_pairs[i][0]) : NULL;
        const bool told = v->thinking_prompt && strstr(v->thinking_prompt, qr_think_pairs[i][0]) && strstr(v->thinking_prompt, qr_think_pairs[i][1]);
        const bool taken = history && strstr(history, QR_PROBE_TEXT) && !strstr(history, QR_PROBE_THOUGHT);
        qr_free(history);
        if (taken || told || (written && strstr(written, qr_think_pairs[i][1])))
            return set_pair(v, i);
    }
    return false;
}

static void derive_thinking(struct qr_deriving *v)
{
#define THOUGHTS "\"reasoning_content\":\"" QR_PROBE_THOUGHT "\",\"reasoning\":\"" QR_PROBE_THOUGHT "\",\"thinking\":\"" QR_PROBE_THOUGHT "\""
    static const char *const shown[] = {
        "{\"role\":\"assistant\",\"content\":\"" QR_PROBE_TEXT "\"," THOUGHTS "}",
        "{\"role\":\"assistant\",\"content\":\"\"," THOUGHTS ",\"tool_calls\":[{\"id\":\"" QR_PROBE_ID1 "\",\"type\":\"function\",\"function\":{\"name\":\""
        QR_PROBE_F1 "\",\"arguments\":{\"" QR_PROBE_A1 "\":\"x\"}}}]}",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"" QR_PROBE_THOUGHT
        "\"},{\"type\":\"text\",\"text\":\"" QR_PROBE_TEXT "\"}]}",
        "{\"role\":\"assistant\",\"content\":{\"blocks\":[{\"type\":\"thoughts\",\"text\":\"" QR_PROBE_THOUGHT
        "\"},{\"type\":\"response\",\"text\":\"" QR_PROBE_TEXT "\"}]}}",
    };
    struct qr_dialect *d = v->d;
    bool found = false;
    for (int i = 0; i < QR_COUNT(shown) && !found; i++) {
        char *text = qr_probe_render(&v->p, shown[i], NULL, false, QR_PROBE_THINK_UNSAID);
        found = thinking_shown(v, text);
        qr_free(text);
    }
    char *closed = qr_probe_render(&v->p, NULL, NULL, true, QR_PROBE_THINK_OFF);
    found = found || thinking_prompted(v, v->thinking_prompt) || thinking_prompted(v, v->prompt) || thinking_prompted(v, closed) || thinking_known(v);
    qr_free(closed);
    if (!found)
        return;
    d->think_anywhere = strncmp(d->think_start, "[", 1) == 0 || strncmp(d->think_start, "<|", 2) == 0;
    d->think_open = d->think_start;
    const char *open = v->thinking_prompt;
    for (const char *at = open; at && (at = strstr(at, d->think_start)) != NULL; at++)
        open = at;
    d->think_opened = open && qr_dialect_starts_inside(d, v->thinking_prompt, strlen(v->thinking_prompt));
    if (d->think_opened)
        d->think_open = qr_dialect_keep(d, open, strlen(open));
}

/* ---- where the answer begins ---- */

/* Whether a prompt that goes on with s has nothing more for the model to read than reasoning's markers. */
static bool prompt_ends(const struct qr_dialect *d, const char *s)
{
    const char *start = qr_text_of(d->think_start), *end = qr_text_of(d->think_end);
    s += qr_blanks(s, strlen(s));
    return !*s || (*start && strncmp(s, start, strlen(start)) == 0) || (*end && strncmp(s, end, strlen(end)) == 0);
}

/* In an answer that is text, and in one of calls where the template renders no other. */
static void find_start(struct qr_deriving *v)
{
    const char *calls = v->two ? v->two : v->one, *base = v->answer ? v->answer : calls;
    const char *user = base ? strstr(base, QR_PROBE_USER) : NULL, *word = user ? strstr(user, v->answer ? QR_PROBE_TEXT : QR_PROBE_F1) : NULL;
    if (!word)
        return;
    const size_t least = (size_t)(user - base) + strlen(QR_PROBE_USER);
    size_t start = (size_t)(word - base);
    const char *others[] = {v->prompt, base == calls ? NULL : calls};
    for (int i = 0; i < QR_COUNT(others); i++) {
        const size_t same = others[i] ? qr_same_front(base, others[i]) : 0;
        if (same >= least && same < start && (i > 0 || prompt_ends(v->d, v->prompt + same)))
            start = same;
    }
    const char *markers[] = {qr_text_of(v->d->think_start), qr_text_of(v->d->think_end)};
    for (int i = 0; i < QR_COUNT(markers); i++) {
        const char *at = *markers[i] ? strstr(base + least, markers[i]) : NULL;
        start = at && (size_t)(at - base) < start ? (size_t)(at - base) : start;
    }
    v->start = start;
    if (start > least && start - least < 200)
        v->d->turn = qr_dialect_keep(v->d, base + least, start - least);
}

/* Markers around an answer that is text. */
static void derive_content(struct qr_deriving *v)
{
    struct qr_dialect *d = v->d;
    const char *text = v->start ? strstr(v->answer + v->start, QR_PROBE_TEXT) : NULL;
    if (!text)
        return;
    const char *before = qr_skip_thought(d, v->answer + v->start, text), *after = text + strlen(QR_PROBE_TEXT);
    const struct qr_slice start = qr_slice_trim((struct qr_slice){before, (size_t)(text - before)});
    const char *stop = marker_end(after + qr_blanks(after, strlen(after)));
    v->tail = after;
    if (start.n == 0 || !marker_end(start.s) || !stop)
        return;
    d->content_start = qr_keep_slice(d, start);
    d->content_end = qr_keep_slice(d, qr_slice_trim((struct qr_slice){after, (size_t)(stop - after)}));
    v->tail = stop;
}

/* ---- templates that do not tell ---- */

/* What such a template writes into a prompt, or an answer, and whose dialect that is. */
static const struct { const char *sign, *family; } signs[] = {
    {"<|channel|>final<|message|>", "gpt-oss"},
    {">>>all\n", "functionary-3.2"},
    {"<|tool_list_start|>", "lfm2"},
    {"List of tools: [", "lfm2"},
    {"respond only with <|tool_call|> followed by a JSON list", "granite3.3"},
    {"<|im_system|>tool_declare<|im_middle|>", "kimi-k2"},
    {"Reasoning Mode:", "smollm3"},
    {"[AVAILABLE_TOOLS]", "mistral-v3"},
    {"<tool_call></tool_call> XML tags", "hermes"},
};

/* The row of what the template shows, or NULL. heads: only rows whose messages have heads, which no comparison tells. */
static const struct qr_dialect *find_sign(const struct qr_deriving *v, bool heads)
{
    for (int i = 0; i < QR_COUNT(signs); i++) {
        const struct qr_dialect *row = qr_family_find(signs[i].family);
        QR_ASSERT(row != NULL);
        if ((row->heads.start != NULL) == heads && ((v->prompt && strstr(v->prompt, signs[i].sign)) || (v->answer && strstr(v->answer, signs[i].sign))))
            return row;
    }
    return NULL;
}

static void take_calls(struct qr_dialect *d, const struct qr_dialect *row)
{
    memcpy(d->form, row->form, sizeof d->form);
    d->n_forms = row->n_forms;
    if (!qr_dialect_has_reasoning(d) && row->shows_tools) {
        d->think_start = row->think_start;
        d->think_label = row->think_label;
        d->think_end = row->think_end;
        d->think_open = row->think_open;
        d->think_anywhere = row->think_anywhere;
    }
    if (!d->content_start) {
        d->content_start = row->content_start;
        d->content_end = row->content_end;
    }
}

/* ---- all of it ---- */

/* Whether a tool's name is in the prompt that has tools. */
static bool shows_tools(const struct qr_deriving *v)
{
    return v->p.tools && v->prompt && strstr(v->prompt, QR_PROBE_F1);
}

/* Renders the prompt and an answer, with tools if the template takes them. */
static void render_basics(struct qr_deriving *v)
{
    static const char text[] = "{\"role\":\"assistant\",\"content\":\"" QR_PROBE_TEXT "\"}";
    static const char *const extra[] = {"", "\"functions\":\"[]\",\"datetime\":\"now\"", ""};
    for (int i = 0; i < QR_COUNT(extra) && !v->prompt; i++) {
        v->p.extra = extra[i];
        v->p.tools = i < 2;
        v->prompt = qr_probe_render(&v->p, NULL, NULL, true, QR_PROBE_THINK_UNSAID);
    }
    v->thinking_prompt = qr_probe_render(&v->p, NULL, NULL, true, QR_PROBE_THINK_ON);
    v->answer = qr_probe_render(&v->p, text, NULL, false, QR_PROBE_THINK_UNSAID);
}

static void derive(struct qr_deriving *v)
{
    struct qr_dialect *d = v->d;
    render_basics(v);
    d->shows_tools = shows_tools(v);
    const struct qr_dialect *row = find_sign(v, true);
    if (row) {
        const bool shows = d->shows_tools;
        *d = *row;
        d->is_row = false;
        d->shows_tools = shows;
        d->name = "derived: messages with heads";
        return;
    }
    derive_thinking(v);
    qr_probe_calls(v);
    find_start(v);
    if (v->answer && v->start)
        derive_content(v);
    if (v->start && (v->one || v->two))
        qr_derive_calls(v);
    row = d->n_forms ? NULL : find_sign(v, false);
    if (row)
        take_calls(d, row);
    else if (d->n_forms)
        qr_dialect_add_readings(d);
    else
        take_calls(d, qr_family_find("json"));
    const char *marker = d->n_forms ? qr_text_of(d->form[0].section_start)[0] ? d->form[0].section_start : qr_text_of(d->form[0].call_start) : "";
    d->calls_end_thinking = strncmp(marker, "<|", 2) == 0 || strncmp(marker, "<｜", 4) == 0 || strncmp(marker, "[TOOL", 5) == 0;
}

struct qr_dialect *qr_dialect_derive(const struct qr_chat *chat)
{
    QR_ASSERT(chat != NULL);
    static const char *const names[] = {[QR_ARGS_JSON] = "derived: names with JSON",
                                        [QR_ARGS_TAGGED] = "derived: names with tagged arguments",
                                        [QR_ARGS_CODE] = "derived: programs",
                                        [QR_ARGS_LOOSE] = "derived: names with literals"};
    struct qr_deriving v = {.d = qr_alloc(1, sizeof *v.d), .p = {.chat = chat}};
    v.d->name = "derived: text";
    derive(&v);
    if (v.d->n_forms && !v.d->heads.start)
        v.d->name = v.d->form[0].layout == QR_CALL_JSON ? "derived: JSON" : names[v.d->form[0].args];
    char *const all[] = {v.prompt, v.thinking_prompt, v.answer, v.one, v.two, v.none, v.pair, v.number};
    for (int i = 0; i < QR_COUNT(all); i++)
        qr_free(all[i]);
    return v.d;
}
