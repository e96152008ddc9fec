#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pattern.h"

#include <pcre2.h>
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/exhausted.h"
#include "base/mem.h"

#define JIT_STACK_BYTES_MIN ((size_t)64 << 10)
#define JIT_STACK_BYTES_MAX ((size_t)8 << 20)
#define MATCH_STEPS_MAX 50000000u /* a megabyte of one character needs a few steps for each byte */
#define HEAP_KIB_MAX (256u << 10)

struct qr_pattern {
    pcre2_code *code; /* owned; NULL: literal */
    bool jit;
    char *literal; /* owned */
    size_t n_literal;
};

struct qr_matcher {
    pcre2_match_data *data;       /* owned */
    pcre2_match_context *context; /* owned */
    pcre2_jit_stack *stack;       /* owned; NULL until a match needs more than the machine's stack */
};

static int compile(struct qr_pattern *p, const struct qr_buf *regex, struct qr_err *err)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        qr_exhausted("out of memory: regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 64);
    p->code = pcre2_compile((PCRE2_SPTR)regex->data, regex->len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, context);
    pcre2_compile_context_free(context);
    if (!p->code) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(code, why, sizeof why);
        return qr_err_set(err, QR_E_DAMAGED, "regular expression \"%.*s\": %s at byte %zu",
                          regex->len > 200 ? 200 : (int)regex->len, regex->data, (const char *)why, (size_t)at);
    }
    p->jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    return 0;
}

int qr_pattern_open(struct qr_pattern **out, const char *regex, size_t len, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(regex != NULL);
    struct qr_buf translated = {0};
    qr_buf_reserve(&translated, len);
    int rc = qr_pattern_translate(&translated, regex, len, err);
    struct qr_pattern *p = qr_alloc(1, sizeof *p);
    if (rc == 0)
        rc = compile(p, &translated, err);
    qr_buf_release(&translated);
    if (rc != 0) {
        qr_pattern_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

struct qr_pattern *qr_pattern_literal(const char *text, size_t len)
{
    QR_ASSERT(text != NULL);
    QR_ASSERT(len > 0);
    struct qr_pattern *p = qr_alloc(1, sizeof *p);
    p->literal = qr_alloc(len, 1);
    memcpy(p->literal, text, len);
    p->n_literal = len;
    return p;
}

void qr_pattern_close(struct qr_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    qr_free(p->literal);
    qr_free(p);
}

static void *take_memory(size_t n_bytes, void *user)
{
    return qr_realloc(NULL, n_bytes, 1);
}

static void give_memory(void *p, void *user)
{
    qr_free(p);
}

/* Its memory, also what a long match needs beside the machine's stack, is of the request for which the text is split. */
struct qr_matcher *qr_matcher_new(void)
{
    struct qr_matcher *m = qr_alloc(1, sizeof *m);
    pcre2_general_context *general = pcre2_general_context_create(take_memory, give_memory, NULL);
    m->data = pcre2_match_data_create(1, general);
    m->context = pcre2_match_context_create(general);
    pcre2_general_context_free(general);
    QR_ASSERT(m->data != NULL && m->context != NULL);
    pcre2_set_match_limit(m->context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(m->context, HEAP_KIB_MAX);
    return m;
}

void qr_matcher_free(struct qr_matcher *m)
{
    if (!m)
        return;
    qr_account_unguard(m->stack);
    pcre2_jit_stack_free(m->stack);
    pcre2_match_context_free(m->context);
    pcre2_match_data_free(m->data);
    qr_free(m);
}

static void free_stack(void *stack, size_t n)
{
    pcre2_jit_stack_free(stack); /* mostly a mapping */
}

/* The machine code first; when its stack does not suffice, a larger one; when that does not either, the interpreter. */
static int match(const struct qr_pattern *p, struct qr_matcher *m, const char *text, size_t len, size_t from)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit) {
        rc = pcre2_jit_match(p->code, subject, len, from, 0, m->data, m->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
            m->stack = pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, NULL);
            if (m->stack) {
                qr_account_guard(free_stack, m->stack, 0);
                pcre2_jit_stack_assign(m->context, NULL, m->stack);
                rc = pcre2_jit_match(p->code, subject, len, from, 0, m->data, m->context);
            }
        }
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, subject, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    return rc;
}

int qr_pattern_find(const struct qr_pattern *p, struct qr_matcher *m, const char *text, size_t len, size_t from,
                    size_t *start, size_t *end, struct qr_err *err)
{
    QR_ASSERT(p != NULL && m != NULL && text != NULL);
    QR_ASSERT(from <= len);
    if (!p->code) {
        const char *hit = p->n_literal == 1 ? memchr(text + from, p->literal[0], len - from)
                                            : memmem(text + from, len - from, p->literal, p->n_literal);
        if (!hit)
            return 0;
        *start = (size_t)(hit - text);
        *end = *start + p->n_literal;
        return 1;
    }
    int rc = match(p, m, text, len, from);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(rc, why, sizeof why);
        return qr_err_set(err, QR_E_TOO_LARGE, "splitting the text failed near byte %zu: %s", from, (const char *)why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    *start = at[0];
    *end = at[1];
    return 1;
}
