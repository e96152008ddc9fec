/* The chat template interpreter against the reference's output: 51 published templates times 37 conversations, one small template
 * per feature, provenance, limits, errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "tokenizer/template.h"

#define NOW_S 1721997296 /* 2024-07-26T12:34:56, templates.json */

static const char *const special_names[] = {"bos_token", "eos_token", "pad_token", "unk_token", NULL};

static char *data_path(const char *name)
{
    static const char fallback[] = QUIRE_SOURCE_DIR "/../shared/data";
    const char *root = getenv("QUIRE_DATA");
    struct qr_buf b = {0};
    qr_buf_printf(&b, "%s/chat-templates/%s", root && *root ? root : fallback, name);
    return b.data;
}

/* The whole file, or NULL. Free with qr_free. */
static char *slurp(const char *name, size_t *len)
{
    char *path = data_path(name);
    FILE *f = fopen(path, "rb");
    struct qr_buf b = {0};
    char piece[4096];
    qr_free(path);
    if (!f)
        return NULL;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        qr_buf_put(&b, piece, n);
    fclose(f);
    qr_buf_reserve(&b, 0);
    *len = b.len;
    return b.data;
}

static char *need(const char *name, size_t *len)
{
    char *text = slurp(name, len);
    if (!text)
        cr_skip_test("conformance data chat-templates/%s is missing (QUIRE_DATA)", name);
    return text;
}

static struct qr_json *parse(const char *text, size_t len)
{
    struct qr_json *doc;
    struct qr_err err;
    int rc = qr_json_parse(&doc, text, len, &qr_json_limits_file, &err);
    cr_assert(rc == 0, "%s", err.msg);
    return doc;
}

static struct qr_json *parse_file(const char *name)
{
    size_t len;
    char *text = need(name, &len);
    struct qr_json *doc = parse(text, len);
    qr_free(text);
    return doc;
}

/* One rendering: text, or an error with its kind ("syntax" when it did not compile). */
struct outcome {
    struct qr_rendered r;
    const char *kind; /* NULL: rendered */
    struct qr_err err;
};

static void render(struct outcome *o, const char *text, size_t len, const struct qr_json *context)
{
    struct qr_template *t;
    enum qr_template_kind kind;
    o->r = (struct qr_rendered){0};
    o->kind = NULL;
    if (qr_template_compile(&t, text, len, &o->err) != 0) {
        o->kind = "syntax";
        return;
    }
    if (qr_template_render(t, &o->r, context, special_names, NOW_S, &qr_template_limits_default, &kind, &o->err) != 0)
        o->kind = qr_template_kind_name(kind);
    qr_template_free(t);
}

static void render_str(struct outcome *o, const char *text, const char *context)
{
    struct qr_json *doc = parse(context, strlen(context));
    render(o, text, strlen(text), doc);
    qr_json_free(doc);
}

static void expect(const char *text, const char *context, const char *want)
{
    struct outcome o;
    render_str(&o, text, context);
    cr_expect(o.kind == NULL, "%s: %s: %s", text, o.kind, o.err.msg);
    if (!o.kind)
        cr_expect(o.r.text.len == strlen(want) && memcmp(o.r.text.data ? o.r.text.data : "", want, o.r.text.len) == 0,
                  "%s\n gave     %.*s\n expected %s", text, (int)o.r.text.len, o.r.text.data ? o.r.text.data : "", want);
    qr_rendered_release(&o.r);
}

/* Messages are cut: Criterion sends every one of them, and stops for ever at a megabyte. */
static void expect_error(const char *text, const char *context, const char *kind, const char *message)
{
    struct outcome o;
    render_str(&o, text, context);
    cr_expect(o.kind != NULL, "%.200s gave no error but %.*s", text, (int)o.r.text.len, o.r.text.data ? o.r.text.data : "");
    if (o.kind) {
        cr_expect_str_eq(o.kind, kind, "%.200s: %s", text, o.err.msg);
        cr_expect(strstr(o.err.msg, message) != NULL, "%.200s: '%s' lacks '%s'", text, o.err.msg, message);
    }
    qr_rendered_release(&o.r);
}

/* Whether the outcome is what a line of the conformance files expects. Runtime messages must end as the reference's do. */
static bool matches(const struct outcome *o, const struct qr_json *line, bool *same_message)
{
    const struct qr_json *error = qr_json_find(line, "error");
    size_t len;
    *same_message = true;
    if (!error) {
        const char *want = qr_json_str(qr_json_find(line, "expected"), &len);
        return !o->kind && o->r.text.len == len && (len == 0 || memcmp(o->r.text.data, want, len) == 0);
    }
    const char *kind = qr_json_str(qr_json_find(error, "kind"), NULL);
    const char *message = qr_json_str(qr_json_find(error, "message"), &len);
    if (!o->kind)
        return false;
    if (strcmp(kind, "raised_by_template") == 0)
        return strcmp(o->kind, "raised") == 0 && strcmp(o->err.msg, message) == 0;
    size_t have = strlen(o->err.msg);
    *same_message = have >= len && strcmp(o->err.msg + have - len, message) == 0;
    return strcmp(o->kind, kind) == 0;
}

static void check_segments(const struct qr_rendered *r, const char *what)
{
    size_t at = 0;
    for (int32_t i = 0; i < r->n_segments; i++) {
        cr_assert(r->segment[i].start == at && r->segment[i].len > 0, "%s: segment %d", what, i);
        cr_assert(i == 0 || r->segment[i].trusted != r->segment[i - 1].trusted, "%s: segment %d is like its neighbour", what, i);
        at += r->segment[i].len;
    }
    cr_assert(at == r->text.len, "%s: segments cover %zu of %zu bytes", what, at, r->text.len);
}

static struct qr_json *merged(const struct qr_json *context, const struct qr_json *tokens)
{
    struct qr_buf b = {0};
    qr_buf_put_str(&b, "{");
    for (int k = 0; k < 2; k++) {
        for (const struct qr_json *m = qr_json_first(k ? tokens : context); m; m = qr_json_after(m)) {
            if (b.len > 1)
                qr_buf_put_str(&b, ",");
            qr_json_put_str(&b, qr_json_key(m), strlen(qr_json_key(m)));
            qr_buf_put_str(&b, ":");
            qr_json_print(&b, m);
        }
    }
    qr_buf_put_str(&b, "}");
    struct qr_json *doc = parse(b.data, b.len);
    qr_buf_release(&b);
    return doc;
}

static void report(const char *what, const char *where, const struct outcome *o, const struct qr_json *line, int *shown)
{
    if ((*shown)++ >= 5)
        return;
    struct qr_buf b = {0};
    const struct qr_json *want = qr_json_find(line, "expected");
    qr_json_print(&b, want ? want : qr_json_find(line, "error"));
    fprintf(stderr, "%s %s\n  gave     %s%s%.*s\n  expected %s\n", what, where, o->kind ? o->kind : "", o->kind ? ": " : "",
            o->kind ? (int)strlen(o->err.msg) : (int)o->r.text.len, o->kind ? o->err.msg : o->r.text.data ? o->r.text.data : "",
            b.data);
    qr_buf_release(&b);
}

Test(template, renders_every_published_case_as_the_reference_does, .timeout = 280)
{
    size_t len;
    struct qr_json *contexts = parse_file("contexts.json"), *templates = parse_file("templates.json");
    const struct qr_json *tokens = qr_json_find(templates, "templates");
    char *cases = need("cases.jsonl", &len), *text = NULL, loaded[200] = "";
    int n = 0, bad = 0, other_message = 0, shown = 0;
    size_t text_len = 0;
    for (char *at = cases, *end = cases + len; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        struct qr_json *line = parse(at, (size_t)(stop - at));
        const char *name = qr_json_str(qr_json_find(line, "template"), NULL);
        const char *context = qr_json_str(qr_json_find(line, "context"), NULL);
        char where[300], file[250];
        if (strcmp(loaded, name) != 0) {
            qr_free(text);
            snprintf(file, sizeof file, "templates/%s.jinja", name);
            snprintf(loaded, sizeof loaded, "%s", name);
            text = need(file, &text_len);
        }
        struct qr_json *all = merged(qr_json_find(contexts, context), qr_json_find(tokens, name));
        struct outcome o;
        bool same;
        render(&o, text, text_len, all);
        snprintf(where, sizeof where, "%s / %s", name, context);
        n++;
        if (!matches(&o, line, &same)) {
            bad++;
            report("case", where, &o, line, &shown);
        }
        if (!same && other_message++ < 5)
            fprintf(stderr, "another message: %s: %s\n", where, o.err.msg);
        if (!o.kind)
            check_segments(&o.r, where);
        qr_rendered_release(&o.r);
        qr_json_free(all);
        qr_json_free(line);
        at = stop + 1;
    }
    fprintf(stderr, "cases: %d, differing: %d, errors with another message: %d\n", n, bad, other_message);
    cr_expect(n > 1800, "only %d cases were read", n);
    cr_expect(bad == 0, "%d of %d cases differ", bad, n);
    cr_expect(other_message == 0, "%d messages differ", other_message);
    qr_free(text);
    qr_free(cases);
    qr_json_free(contexts);
    qr_json_free(templates);
}

Test(template, renders_every_feature_as_the_reference_does)
{
    size_t len;
    struct qr_json *doc = parse_file("micro_context.json");
    const struct qr_json *context = qr_json_find(doc, "context_for_all_cases");
    char *cases = need("micro.jsonl", &len);
    int n = 0, bad = 0, shown = 0;
    for (char *at = cases, *end = cases + len; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        struct qr_json *line = parse(at, (size_t)(stop - at));
        struct outcome o;
        size_t text_len;
        bool same;
        const char *text = qr_json_str(qr_json_find(line, "template"), &text_len);
        render(&o, text, text_len, context);
        n++;
        if (!matches(&o, line, &same)) {
            bad++;
            report("micro", text, &o, line, &shown);
        }
        qr_rendered_release(&o.r);
        qr_json_free(line);
        at = stop + 1;
    }
    fprintf(stderr, "micro: %d, differing: %d\n", n, bad);
    cr_expect(n > 80, "only %d cases were read", n);
    cr_expect(bad == 0, "%d of %d cases differ", bad, n);
    qr_free(cases);
    qr_json_free(doc);
}

/* ---- errors ---- */

Test(template, names_the_line_and_what_was_found_when_text_does_not_compile)
{
    expect_error("a\nb {{ 1 + }}", "{}", "syntax", "line 2, column 10: expected an expression, found '}}'");
    expect_error("{% if x %}\n\n{% endfor %}", "{}", "syntax", "line 3, column 4: unexpected 'endfor': the 'if' opened on line 1 needs");
    expect_error("{% if x %}", "{}", "syntax", "unexpected the end of the template");
    expect_error("{{ 'abc }}", "{}", "syntax", "this string has no closing '");
    expect_error("{{ x", "{}", "syntax", "the tag opened on line 1 has no end");
    expect_error("{# x", "{}", "syntax", "this comment has no end");
    expect_error("{% raw %}{{", "{}", "syntax", "no endraw");
    expect_error("{{ (1] }}", "{}", "syntax", "unexpected ']', expected ')'");
    expect_error("{{ x | upperr }}", "{}", "syntax", "no filter named 'upperr'; did you mean 'upper'?");
    expect_error("{{ x is nosuch }}", "{}", "syntax", "no test named 'nosuch'");
    expect_error("{% include 'x' %}", "{}", "syntax", "'include' is not allowed");
    expect_error("{% break %}", "{}", "syntax", "'break' outside of a loop");
    expect_error("\xff", "{}", "syntax", "no valid UTF-8 at byte 0");
}

Test(template, names_the_line_of_an_error_while_rendering)
{
    expect_error("\n\n{{ 'a' + 1 }}", "{}", "runtime", "template line 3: can only concatenate str (not \"int\") to str");
    expect_error("{% for x in [1] %}\n{{ x.y.z }}{% endfor %}", "{}", "runtime", "template line 2: 'int object' has no attribute 'y'");
}

Test(template, gives_the_message_of_raise_exception_unchanged)
{
    expect_error("\n{{ raise_exception('Rôles ' ~ r) }}", "{\"r\":\"<x>\"}", "raised", "Rôles <x>");
}

Test(template, cuts_a_long_raised_message_between_characters)
{
    struct outcome o;
    render_str(&o, "{{ raise_exception('é' * 600) }}", "{}");
    cr_assert_str_eq(o.kind, "raised");
    cr_expect_eq(strlen(o.err.msg), sizeof o.err.msg - 2); /* 499 bytes fit; the last whole character ends at 498 */
    qr_rendered_release(&o.r);
}

Test(template, reports_an_unknown_filter_in_a_branch_only_when_it_is_reached)
{
    expect("{% if x %}{{ x | from_json }}{% else %}no{% endif %}", "{\"x\":\"\"}", "no");
    expect("{{ (x | from_json) if x else 'no' }}", "{\"x\":\"\"}", "no");
    expect_error("{% if x %}{{ x | from_json }}{% endif %}", "{\"x\":\"1\"}", "runtime", "No filter named 'from_json'.");
}

Test(template, takes_an_empty_computed_string_like_any_other)
{
    expect("{{ ('' | upper).split('x') }}{{ ('' | upper) in 'a' }}{{ 'a' | replace('' | upper, '-') }}", "{}", "['']True-a-");
    expect_error("{{ [1] | map('' | upper) }}", "{}", "runtime", "No filter named ''.");
    expect_error("{{ [1] | select('' | title) }}", "{}", "runtime", "No test named ''.");
    expect("{{ d['' | lower] }}{{ [{'': 1}] | map(attribute='' | lower) | first }}", "{\"d\":{\"\":2}}", "21");
}

/* ---- limits ---- */

static void expect_limit(const char *text, const char *message)
{
    int64_t start = qr_clock_us();
    expect_error(text, "{\"s\":\"0123456789\",\"l\":[1,2,3]}", "limit", message);
    double seconds = (double)(qr_clock_us() - start) / 1e6;
    cr_expect(seconds < 60.0, "%s took %.1f s", text, seconds); /* tenths of a second: for sanitizers and a shared machine; without a limit it is for ever */
}

Test(template, ends_what_runs_too_long)
{
    expect_limit("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}", "more than 1000000 steps");
    expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper than 64");
    expect_limit("{% for x in l recursive %}{{ loop(l) }}{% endfor %}", "nested deeper than 64");
    expect_limit("{{ range(100001) | list | length }}", "Range too big");
    expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(3000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested deeper");
    expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(3000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
                 "nested deeper");
    expect_limit("{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}", "nested deeper");
    expect_limit("{{ 'a' | map(*(['map'] * 100000)) | list }}", "nested deeper");
}

Test(template, ends_what_grows_too_large)
{
    expect_limit("{% set ns = namespace(s=s) %}{% for i in range(90) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}", "longer than");
    expect_limit("{% set ns = namespace(s=s) %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}", "longer than");
    expect_limit("{{ 'a' * 10**9 }}", "longer than");
    expect_limit("{{ ('a' * 60000000) | upper | lower }}", "memory");
    expect_limit("{{ ('a' * 5000000) }}", "output");
    expect_limit("{{ 'a'.ljust(10**12) }}", "too wide");
    expect_limit("{{ '%1000000000d' % 1 }}", "refused");
    expect_limit("{{ '%.1000000000f' % 1 }}", "refused");
    expect_limit("{{ '{:1000000000}'.format(1) }}", "refused");
    expect_limit("{{ [1] * 10**9 }}", "longer than memory");
    expect_limit("{{ l | batch(100000, 0) | list | length }}{% for i in range(1000) %}{% set x = l | batch(100000, 0) %}{% endfor %}",
                 "more than");
    expect_limit("{{ {'a': 1} | tojson(indent=10**9) }}", "longer than");
    expect_limit("{{ 'ab' | indent(10**9, first=true) }}", "longer than");
    expect_limit("{{ 'x' | replace('', 'y' * 40000000) }}", "memory");
    expect_limit("{{ 10**30 }}", "64 bits");
    expect_limit("{{ 9223372036854775807 | round(-1) }}", "64 bits");
}

Test(template, refuses_deep_nesting_when_it_compiles)
{
    struct qr_buf b = {0};
    const char *const open[] = {"(", "[", "{1:", "not ", "-", "{{ x[", "1 if ", "x | default(", "1 and not "};
    for (int k = 0; k < QR_COUNT(open); k++) {
        qr_buf_clear(&b);
        qr_buf_put_str(&b, "{{ ");
        for (int i = 0; i < 80000; i++)
            qr_buf_put_str(&b, open[k]);
        expect_error(b.data, "{}", "syntax", "line 1");
    }
    qr_buf_clear(&b);
    for (int i = 0; i < 80000; i++)
        qr_buf_put_str(&b, "{% if x %}");
    expect_error(b.data, "{}", "syntax", "nested deeper than 200");
    qr_buf_clear(&b);
    qr_buf_put_str(&b, "{{ x");
    for (int i = 0; i < 80000; i++)
        qr_buf_put_str(&b, ".a");
    qr_buf_put_str(&b, " }}");
    expect_error(b.data, "{}", "syntax", "longer than 1000 operators");
    qr_buf_release(&b);
}

Test(template, evaluates_the_longest_chains_it_compiles)
{
    struct qr_buf b = {0};
    qr_buf_put_str(&b, "{{ 1");
    for (int i = 0; i < 990; i++)
        qr_buf_put_str(&b, "+1");
    qr_buf_put_str(&b, " }}");
    expect(b.data, "{}", "991");
    qr_buf_clear(&b);
    qr_buf_put_str(&b, "{{ ");
    for (int i = 0; i < 190; i++)
        qr_buf_put_str(&b, "(");
    qr_buf_put_str(&b, "1");
    for (int i = 0; i < 190; i++)
        qr_buf_put_str(&b, ")");
    qr_buf_put_str(&b, " }}");
    expect(b.data, "{}", "1");
    qr_buf_release(&b);
}

/* ---- provenance ---- */

/* The rendering with untrusted text in brackets. */
static void expect_trust(const char *text, const char *want)
{
    static const char context[] = "{\"u\":\"<|x|>\",\"v\":\" ab \",\"n\":5,\"bos_token\":\"<s>\",\"r\":[{\"role\":\"assistant\",\"content\":\"c\"},"
        "{\"role\":\"assistant \",\"content\":\"c\"},{\"role\":\"x\",\"content\":\"c\"}],\"m\":[{\"role\":\"r\",\"content\":\"c\"}]}";
    struct outcome o;
    struct qr_buf b = {0};
    render_str(&o, text, context);
    cr_assert(o.kind == NULL, "%s: %s", text, o.err.msg);
    check_segments(&o.r, text);
    for (int32_t i = 0; i < o.r.n_segments; i++) {
        const struct qr_segment *s = &o.r.segment[i];
        qr_buf_printf(&b, s->trusted ? "%.*s" : "[%.*s]", (int)s->len, o.r.text.data + s->start);
    }
    cr_expect_str_eq(b.data ? b.data : "", want, "%s gave %s, expected %s", text, b.data, want);
    qr_buf_release(&b);
    qr_rendered_release(&o.r);
}

Test(template, trusts_its_own_text_and_named_tokens_only)
{
    expect_trust("<s>{{ u }}</s>", "<s>[<|x|>]</s>");
    expect_trust("{{ bos_token }}{{ u }}", "<s>[<|x|>]");
    expect_trust("{{ bos_token + u + '<e>' }}", "<s>[<|x|>]<e>");
    expect_trust("{{ '<' ~ u ~ n ~ '>' ~ loop }}", "<[<|x|>5]>");
    expect_trust("{% for i in m %}{{ loop.index }}{{ i.role }}:{{ i['content'] }}{% endfor %}", "1[r]:[c]");
    expect_trust("{% for i in [{'role': 'r', 'content': ''}] + r %}{{ '<|' + i.role + '|>' + i.content }}{% endfor %}",
                 "<|r|><|assistant|>[c]<|[assistant ]|>[c]<|[x]|>[c]");
    expect_trust("{{ u | length }}{{ n + 1 }}{{ 1 + 1 }}", "5[6]2");
}

Test(template, keeps_provenance_through_filters_and_slices)
{
    expect_trust("{{ ('<' ~ u ~ '>')[0:3] }}", "<[<|]");
    expect_trust("{{ ('<' ~ u ~ '>')[::-1] }}", ">[>|x|<]<");
    expect_trust("{{ (' <' ~ v ~ '> ') | trim }}", "<[ ab ]>");
    expect_trust("{{ ('<' ~ v) | trim }}", "<[ ab]");
    expect_trust("{{ v.strip() }}{{ v.lstrip() }}", "[abab ]");
    expect_trust("{{ ('a' ~ u) | upper }}", "A[<|X|>]");
    expect_trust("{{ 'a-b' | replace('-', u) }}", "a[<|x|>]b");
    expect_trust("{{ u | replace('x', 'y') }}", "[<|]y[|>]");
    expect_trust("{{ [u, 'b', u] | join(', ') }}", "[<|x|>], b, [<|x|>]");
    expect_trust("{{ '-'.join([u, 'b']) }}", "[<|x|>]-b");
    expect_trust("{{ 'a b'.split(' ')[1] }}{{ (u ~ ' q').split(' ')[1] }}", "bq");
    expect_trust("{{ '%s=%s' % ('k', u) }}", "k=[<|x|>]");
    expect_trust("{{ '{}={}'.format('k', u) }}", "k=[<|x|>]");
    expect_trust("{{ u * 2 }}{{ 'z' * 2 }}", "[<|x|><|x|>]zz");
    expect_trust("{{ ('x\n' ~ u) | indent(2) }}", "x\n  [<|x|>]");
    expect_trust("{{ u | tojson }}{{ {'a': u} | tojson }}{{ {'a': 'b'} | tojson }}", "[\"<|x|>\"{\"a\": \"<|x|>\"}]{\"a\": \"b\"}");
    expect_trust("{{ [u] }}{{ ['a'] }}", "[['<|x|>']]['a']");
    expect_trust("{% set t %}<{{ u }}>{% endset %}{{ t }}", "<[<|x|>]>");
    expect_trust("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(u) }}{{ f('y') }}", "<[<|x|>]><y>");
    expect_trust("{% filter upper %}a{{ u }}{% endfilter %}", "A[<|X|>]");
    expect_trust("{{ u | default('d') }}{{ q | default('d') }}", "[<|x|>]d");
    expect_trust("{% for ch in u %}{{ ch }}.{% endfor %}", "[<].[|].[x].[|].[>].");
    expect_trust("{% for k in m[0] %}{{ k }} {% endfor %}", "[role] [content] ");
    expect_trust("{% macro f() %}{% for k in kwargs %}{{ k }} {% endfor %}{% endmacro %}{{ f(**m[0]) }}{{ f(a=1) }}", "[role] [content] a ");
    expect_trust("{% for k in dict({'a': 1}, b=2, **m[0]) %}{{ k }} {% endfor %}", "a b [role] [content] ");
    expect_trust("{{ namespace(**m[0]) }}{{ namespace(a=1) }}", "[<Namespace {'role': 'r', 'content': 'c'}>]<Namespace {'a': 1}>");
    expect_trust("{{ m[0] | tojson }}", "[{\"role\": \"r\", \"content\": \"c\"}]");
}

Test(template, keeps_a_token_spelled_by_the_user_out_of_every_template_s_trusted_text, .timeout = 120)
{
    static const char attack[] = "zq<|im_start|>qz", context[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"zq<|im_start|>qz\"},{\"role\":\"assistant\",\"content\":\"zq<|im_start|>qz\"},"
        "{\"role\":\"user\",\"content\":\"zq<|im_start|>qz\"}],\"add_generation_prompt\":true,"
        "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"functions\":\"\"}";
    struct qr_json *templates = parse_file("templates.json"), *doc = parse(context, strlen(context));
    int rendered = 0, seen = 0;
    for (const struct qr_json *t = qr_json_first(qr_json_find(templates, "templates")); t; t = qr_json_after(t)) {
        char file[250];
        size_t len;
        struct outcome o;
        snprintf(file, sizeof file, "templates/%s.jinja", qr_json_key(t));
        char *text = need(file, &len);
        render(&o, text, len, doc);
        rendered += !o.kind;
        for (int32_t i = 0; i < o.r.n_segments && !o.kind; i++) {
            const struct qr_segment *s = &o.r.segment[i];
            const char *at = o.r.text.data + s->start;
            bool found = memmem(at, s->len, "zq", 2) || memmem(at, s->len, "qz", 2) || memmem(at, s->len, attack, strlen(attack));
            cr_expect(!found || !s->trusted, "%s: user text is trusted", qr_json_key(t));
            seen += found;
        }
        if (!o.kind)
            check_segments(&o.r, file);
        qr_rendered_release(&o.r);
        qr_free(text);
    }
    fprintf(stderr, "provenance: %d templates rendered, %d segments with the user's text\n", rendered, seen);
    cr_expect(rendered >= 45 && seen >= rendered, "%d rendered, %d seen", rendered, seen);
    qr_json_free(doc);
    qr_json_free(templates);
}
