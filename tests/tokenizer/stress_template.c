/* One compiled template rendered by several threads at once: every rendering is the same, and nothing is written that they share. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/template.h"

#define THREADS 4
#define ROUNDS 300

static const char text[] =
    "{% macro f(a, b='é') %}[{{ a | upper }}{{ b }}]{% endmacro %}{{ bos_token }}{% for m in messages %}<|{{ m.role ~ '|>' }}"
    "{{ f(m.content.split(' ')[-1][::-1]) }}{{ m | tojson(indent=1) }}{{ 'é😀'[1] }}{{ 'straße' | upper | length }}"
    "{% set x %}{{ loop.index }}{{ m.content | replace('o', '0') }}{% endset %}{{ x }}{{ [m.role, 1.5] }}{% endfor %}";
static const char context[] =
    "{\"bos_token\":\"<s>\",\"messages\":[{\"role\":\"user\",\"content\":\"hello wörld\"},{\"role\":\"bot\",\"content\":\"good day\"}]}";

struct job {
    const struct qr_template *t;
    const struct qr_json *doc;
    const struct qr_rendered *want;
    int bad;
};

static int render(const struct qr_template *t, const struct qr_json *doc, struct qr_rendered *out)
{
    static const char *const trusted[] = {"bos_token", NULL};
    enum qr_template_kind kind;
    struct qr_err err;
    return qr_template_render(t, out, doc, trusted, 0, &qr_template_limits_default, &kind, &err);
}

static void *work(void *arg)
{
    struct job *j = arg;
    struct qr_rendered r = {0};
    for (int i = 0; i < ROUNDS; i++) {
        if (render(j->t, j->doc, &r) != 0 || r.text.len != j->want->text.len || r.n_segments != j->want->n_segments ||
            memcmp(r.text.data, j->want->text.data, r.text.len) != 0)
            j->bad++;
    }
    qr_rendered_release(&r);
    return NULL;
}

int main(void)
{
    struct qr_template *t;
    struct qr_json *doc;
    struct qr_rendered want = {0};
    struct qr_err err;
    pthread_t thread[THREADS];
    struct job job[THREADS];
    int bad = 0;
    if (qr_template_compile(&t, text, sizeof text - 1, &err) != 0 ||
        qr_json_parse(&doc, context, sizeof context - 1, &qr_json_limits_file, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    if (render(t, doc, &want) != 0)
        return 1;
    for (int i = 0; i < THREADS; i++) {
        job[i] = (struct job){t, doc, &want, 0};
        if (pthread_create(&thread[i], NULL, work, &job[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        bad += job[i].bad;
    }
    printf("%d threads x %d renderings of %zu bytes: %d differ\n", THREADS, ROUNDS, want.text.len, bad);
    qr_rendered_release(&want);
    qr_template_free(t);
    qr_json_free(doc);
    return bad != 0;
}
