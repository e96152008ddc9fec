/* test_schema_data.c - real schemas with instances that somebody else found valid or not, and the official test suite. */
#include "base/utf8.h"
#include "real.h"

#define FORMS 3

struct tally { int n_schemas, n_compiled, n_valid, n_refused, n_invalid, n_taken; };

static void escape(struct qr_buf *out, const struct qr_buf *text)
{
    for (size_t i = 0; i < text->len;) {
        uint32_t rune = 0;
        const int32_t n = qr_utf8_decode(text->data + i, text->len - i, &rune);
        cr_assert_gt(n, 0);
        if (rune < 0x80)
            qr_buf_put_byte(out, text->data[i]);
        else if (rune < 0x10000)
            qr_buf_printf(out, "\\u%04x", rune);
        else
            qr_buf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((rune - 0x10000) >> 10), 0xDC00 + ((rune - 0x10000) & 0x3FF));
        i += (size_t)n;
    }
}

static bool takes(struct qr_grammar *g, const struct qr_json *v, int form)
{
    struct qr_buf text = {0}, escaped = {0};
    dump(&text, v, form);
    if (form == 2)
        escape(&escaped, &text);
    const struct qr_buf *used = form == 2 ? &escaped : &text;
    const bool ok = words_match(g, used->data ? used->data : "", used->len);
    qr_buf_release(&text);
    qr_buf_release(&escaped);
    return ok;
}

static void count_tests(struct tally *t, struct qr_grammar *g, const char *id, const struct qr_json *tests)
{
    for (const struct qr_json *test = qr_json_first(tests); test; test = qr_json_after(test)) {
        const struct qr_json *data = qr_json_find(test, "data"), *in_order = qr_json_find(test, "in_order");
        const bool valid = qr_json_bool(qr_json_find(test, "valid"));
        int n_taken = 0;
        for (int form = 0; form < FORMS; form++)
            n_taken += takes(g, data, form);
        t->n_invalid += !valid;
        t->n_taken += !valid && n_taken > 0;
        cr_expect(valid || n_taken == 0, "%s takes an instance that is not valid", id);
        if (!valid || (in_order && !qr_json_bool(in_order)))
            continue;
        t->n_valid++;
        t->n_refused += n_taken < FORMS;
    }
}

static struct tally count_file(const char *name, const char *id_key)
{
    struct words w;
    struct tally t = {0};
    struct qr_buf text = read_lines(name);
    size_t at = 0;
    words_make(&w, NULL);
    for (struct qr_json *doc; (doc = next_line(&text, &at));) {
        struct qr_grammar *g = NULL;
        struct qr_err err = {0};
        t.n_schemas++;
        if (build_schema(&g, w.vocab, qr_json_find(doc, "schema"), &(struct qr_schema_options){0}, &err) == 0) {
            t.n_compiled++;
            count_tests(&t, g, qr_json_str(qr_json_find(doc, id_key), NULL), qr_json_find(doc, "tests"));
        } else {
            cr_expect(err.param[0] == '$' || err.param[0] == 0, "%s", err.param);
            cr_expect_neq(err.msg[0], 0);
        }
        qr_grammar_unref(g);
        qr_json_free(doc);
    }
    words_free(&w);
    qr_buf_release(&text);
    cr_log_info("%s: %d of %d schemas compile; of %d valid instances %d are refused, of %d invalid ones %d taken", name, t.n_compiled, t.n_schemas,
                t.n_valid, t.n_refused, t.n_invalid, t.n_taken);
    return t;
}

Test(schema_data, nine_real_schemas_of_ten_compile_and_instances_in_order_are_judged_right)
{
    const struct tally t = count_file("answers/schemas.jsonl", "id");
    cr_expect_geq(t.n_compiled * 10, t.n_schemas * 9, "%d of %d", t.n_compiled, t.n_schemas);
    cr_expect_leq(t.n_refused * 100, t.n_valid, "%d of %d valid ones are refused", t.n_refused, t.n_valid);
    cr_expect_eq(t.n_taken, 0);
    cr_expect_gt(t.n_valid, 250);
    cr_expect_gt(t.n_invalid, 450);
}

Test(schema_data, of_schemas_whose_instances_have_any_order_no_invalid_one_is_taken)
{
    const struct tally t = count_file("json-schema/real_schemas.jsonl", "id");
    cr_expect_geq(t.n_compiled * 10, t.n_schemas * 9, "%d of %d", t.n_compiled, t.n_schemas);
    cr_expect_leq(t.n_refused * 100, t.n_valid * 7, "%d of %d valid ones are refused", t.n_refused, t.n_valid); /* five are not in order */
    cr_expect_eq(t.n_taken, 0);
}

Test(schema_data, no_group_of_the_official_suite_that_compiles_is_wrong)
{
    const struct tally t = count_file("json-schema/test_suite_2020-12.jsonl", "description");
    cr_expect_geq(t.n_compiled, 150, "%d of %d", t.n_compiled, t.n_schemas);
    cr_expect_eq(t.n_refused, 0);
    cr_expect_eq(t.n_taken, 0);
}

Test(schema_data, strict_schemas_are_told_from_others)
{
    struct words w;
    struct qr_buf text = read_lines("answers/strict_schemas.jsonl");
    size_t at = 0;
    int n = 0;
    words_make(&w, NULL);
    for (struct qr_json *doc; (doc = next_line(&text, &at));) {
        const struct qr_json *may = qr_json_find(doc, "may_accept"), *must = qr_json_find(doc, "must_refuse");
        const char *name = qr_json_str(qr_json_find(doc, "name"), NULL);
        for (int strict = 0; strict < 2; strict++, n++) {
            struct qr_grammar *g = NULL;
            struct qr_err err = {0};
            const int rc = build_schema(&g, w.vocab, qr_json_find(doc, "schema"), &(struct qr_schema_options){.strict = strict}, &err);
            if (strict && !(may && qr_json_bool(may)))
                cr_expect_eq(rc == 0, qr_json_bool(qr_json_find(doc, "strict_ok")), "%s: %s", name, err.msg);
            cr_expect(!must || !qr_json_bool(must) || rc != 0, "%s is taken", name);
            qr_grammar_unref(g);
        }
        qr_json_free(doc);
    }
    cr_expect_geq(n, 24);
    words_free(&w);
    qr_buf_release(&text);
}
