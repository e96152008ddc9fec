#include "server/pairs.h"

#include <stdio.h>

#include "base/assert.h"
#include "server/openai.h"

#define RERANK 1
#define SCORE 2
#define TEXT "a string or an object with \"text\""

/* Names of the two sides, the usual ones first. */
static const struct side {
    const char *name;
    uint8_t apis, of;
} sides[] = {{"query", RERANK, 0}, {"text_1", SCORE, 0},             {"queries", SCORE, 0}, {"data_1", SCORE, 0},
             {"text_2", SCORE, 1}, {"documents", RERANK | SCORE, 1}, {"items", SCORE, 1},   {"data_2", SCORE, 1}};

struct fields {
    const struct qr_json *model, *instruction, *timeout, *top_n, *shows, *activation, *cut, *side[QR_COUNT(sides)];
};

const char *qr_pairs_text(const struct qr_json *v, size_t *n)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(n != NULL);
    return qr_json_str(qr_json_type(v) == QR_JSON_T_OBJECT ? qr_json_find(v, "text") : v, n);
}

const struct qr_json *qr_pairs_first(const struct qr_json *side)
{
    QR_ASSERT(side != NULL);
    return qr_json_type(side) == QR_JSON_T_ARRAY ? qr_json_first(side) : side;
}

static int check_text(const struct qr_json *v, const char *path, struct qr_err *err)
{
    char inner[72];
    const struct qr_json *text = qr_json_find(v, "text");
    if (qr_json_type(v) == QR_JSON_T_STRING)
        return 0;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_wrong_type(err, path, TEXT, v);
    snprintf(inner, sizeof inner, "%s.text", path);
    if (qr_json_is_null(text))
        return qr_err_at(err, QR_E_INVALID, inner, "%s is required: a string", inner);
    return qr_json_type(text) == QR_JSON_T_STRING ? 0 : qr_wrong_type(err, inner, "a string", text);
}

/* *n: its texts. */
static int check_side(int32_t *n, const struct qr_json *v, const char *name, bool many, struct qr_err *err)
{
    char path[64];
    int rc = 0;
    int32_t i = 0;
    *n = 1;
    if (qr_json_type(v) != QR_JSON_T_ARRAY || !many)
        return check_text(v, name, err);
    *n = qr_json_count(v);
    if (*n < 1)
        return qr_err_at(err, QR_E_INVALID, name, "%s is empty; at least one text is needed", name);
    if (*n > QR_PAIRS_MAX)
        return qr_err_at(err, QR_E_TOO_LARGE, name, "%s has %d texts; at most %d fit one request", name, *n, QR_PAIRS_MAX);
    for (const struct qr_json *t = qr_json_first(v); t && rc == 0; t = qr_json_after(t), i++) {
        snprintf(path, sizeof path, "%s[%d]", name, i);
        rc = check_text(t, path, err);
    }
    return rc;
}

/* The one field that has a side's texts. */
static int choose_side(struct qr_pairs *out, int of, const struct fields *f, uint8_t api, struct qr_err *err)
{
    const char *usual = NULL;
    for (int i = 0; i < QR_COUNT(sides); i++) {
        const struct side *s = &sides[i];
        if (s->of != of || !(s->apis & api))
            continue;
        usual = usual ? usual : s->name;
        if (f->side[i] && out->text[of])
            return qr_err_at(err, QR_E_INVALID, s->name, "%s and %s are two names of one field; send one of them", out->name[of], s->name);
        if (!f->side[i])
            continue;
        out->text[of] = f->side[i];
        out->name[of] = s->name;
    }
    return out->text[of] ? 0 : qr_err_at(err, QR_E_INVALID, usual, "%s is required: %s", usual,
                                         api == RERANK && of == 0 ? TEXT : "a text, or an array of texts");
}

static int read_sides(struct qr_pairs *out, const struct fields *f, uint8_t api, struct qr_err *err)
{
    int32_t n[2] = {0};
    int rc = 0;
    for (int of = 0; of < 2 && rc == 0; of++)
        rc = choose_side(out, of, f, api, err);
    for (int of = 0; of < 2 && rc == 0; of++)
        rc = check_side(&n[of], out->text[of], out->name[of], api == SCORE || of == 1, err);
    if (rc == 0 && n[0] != 1 && n[0] != n[1])
        rc = qr_err_at(err, QR_E_INVALID, out->name[1], "%s has %d texts and %s %d; expected as many, or one in %s", out->name[0], n[0], out->name[1], n[1],
                       out->name[0]);
    out->n_first = n[0];
    out->n = n[1];
    return rc;
}

static int read_fields(struct qr_pairs *out, const struct fields *f, struct qr_err *err)
{
    int64_t top = 0;
    const int rc = f->top_n ? qr_read_whole(&top, f->top_n, "top_n", 0, INT32_MAX, err) : 0;
    if (rc != 0)
        return rc;
    if (f->cut)
        return qr_err_at(err, QR_E_UNSUPPORTED, "truncate_prompt_tokens", "truncate_prompt_tokens is not supported; send texts that fit");
    out->top_n = top > 0 && top < out->n ? (int32_t)top : out->n; /* 0 is vLLM's word for all */
    out->documents = !f->shows || qr_json_bool(f->shows);
    out->raw = f->activation && !qr_json_bool(f->activation);
    out->model = f->model;
    out->instruction = f->instruction;
    out->timeout = f->timeout;
    return 0;
}

int qr_pairs_read(struct qr_pairs *out, bool rerank, const char *body, size_t len, struct qr_err *err)
{
    struct fields f = {0};
    struct qr_member members[7 + QR_COUNT(sides)] = {
        {"model", QR_JSON_T_STRING, "a string", .value = &f.model},
        {"instruction", QR_JSON_T_STRING, "a string", .value = &f.instruction},
        {"use_activation", QR_JSON_T_BOOL, "true or false", .value = &f.activation},
        {"truncate_prompt_tokens", QR_JSON_T_NULL, NULL, .value = &f.cut},
        {"timeout", QR_JSON_T_NULL, NULL, .value = &f.timeout},
        {"top_n", QR_JSON_T_NULL, "an integer", .value = &f.top_n},
        {"return_documents", QR_JSON_T_BOOL, "true or false", .value = &f.shows},
    };
    int32_t n = rerank ? 7 : 5; /* the last two are rerank's */
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(body != NULL || len == 0);
    *out = (struct qr_pairs){0};
    const uint8_t api = rerank ? RERANK : SCORE;
    for (int i = 0; i < QR_COUNT(sides); i++)
        if (sides[i].apis & api)
            members[n++] = (struct qr_member){sides[i].name, QR_JSON_T_NULL, NULL, .value = &f.side[i]};
    int rc = qr_members_read(&out->doc, body, len, members, n, err);
    rc = rc ? rc : read_sides(out, &f, api, err);
    return rc ? rc : read_fields(out, &f, err);
}
