/* test_doors - the tables of fields of all doors, walked: whatever a field is given, it is taken, or refused by its own name in the door's form. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "server/api_error.h"
#include "server/messages.h"
#include "server/ollama.h"
#include "server/openai.h"
#include "server/responses.h"

#define DEEP "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"

/* base: what a body must have, each member on its own; takes_all: names of fields that are not looked at. */
static const struct door_case {
    const struct qr_door *door;
    const char *base[2][2];
    const char *takes_all[4];
    const char *form;
} cases[] = {
    {&qr_door_messages, {{"max_tokens", "9"}, {"messages", "[{\"role\":\"user\",\"content\":\"a\"}]"}}, {NULL}, "{\"type\":\"error\",\"error\":{\"type\":\""},
    {&qr_door_responses, {{"input", "\"a\""}}, {"max_tool_calls", "prompt_cache_key", "user"}, "{\"error\":{\"message\":\""},
    {&qr_door_ollama_chat, {{"messages", "[{\"role\":\"user\",\"content\":\"a\"}]"}}, {NULL}, "{\"error\":\""},
    {&qr_door_ollama_generate, {{"prompt", "\"a\""}}, {NULL}, "{\"error\":\""},
};

static const char *const values[] = {
    "null", "true", "false", "0", "-1", "1.5", "1e300", "-1e300", "9223372036854775808", "2147483648", "\"\"", "\"x\"", "\"\\u00e9\"", "[]", "[1]",
    "[null]", "[\"x\"]", "[\"\"]", "[{}]", "[[]]", "[{\"type\":1}]", "[{\"type\":\"nonsense\"}]", "[{\"role\":\"nonsense\"}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]", "[{\"role\":\"user\",\"content\":[{\"type\":5}]}]", "[{\"type\":\"function\"}]", "{}",
    "{\"type\":1}", "{\"type\":\"nonsense\"}", "{\"type\":\"enabled\",\"budget_tokens\":0}", "{\"type\":\"json_schema\",\"schema\":{\"type\":\"nonsense\"}}",
    "{\"format\":{\"type\":\"nonsense\"}}", "{\"effort\":1}", "{\"temperature\":9}", "{\"seed\":\"x\"}", "{\"a\":{\"b\":[1]}}", "{\"messages\":\"x\"}", DEEP,
};

static bool is_one_of(const char *name, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] && strcmp(list[i], name) == 0)
            return true;
    return false;
}

static void put_body(struct qr_buf *out, const struct door_case *c, const char *name, const char *value)
{
    qr_buf_printf(out, "{\"%s\":%s", name, value);
    for (int i = 0; i < QR_COUNT(c->base); i++)
        if (c->base[i][0] && strcmp(c->base[i][0], name) != 0)
            qr_buf_printf(out, ",\"%s\":%s", c->base[i][0], c->base[i][1]);
    qr_buf_put_byte(out, '}');
}

/* As a call does it, up to the engine. False: e says why. */
static bool takes(const struct door_case *c, const struct qr_buf *body, struct qr_api_error *e)
{
    static const struct qr_params_context context = {.ctx_max = 256, .vocab = 300};
    struct qr_door_in in = {.ctx_max = 256};
    struct qr_params p;
    struct qr_err err = {0};
    int rc = qr_door_translate(c->door, &in, body->data, body->len, &err);
    const bool translated = rc == 0;
    rc = rc ? rc : qr_params_parse(&p, QR_API_CHAT, in.chat.data, in.chat.len, &context, &err);
    if (rc == 0) {
        qr_params_release(&p);
    } else {
        qr_api_error_from(e, &err);
        if (translated)
            qr_door_rename(c->door, &in.sources, e);
        e->door = c->door;
    }
    qr_door_in_release(&in);
    return rc == 0;
}

static void check_error(const struct door_case *c, const char *name, const struct qr_buf *body, const struct qr_api_error *e)
{
    const size_t n = strlen(name);
    struct qr_buf text = {0};
    struct qr_json *v = NULL;
    struct qr_err none = {0};
    cr_assert(e->status == 400 || (e->status == 404 && strstr(e->message, "is stored")), "%s: %d %s", body->data, e->status, e->message);
    cr_assert(strcmp(e->message, "") != 0 && (strstr(e->message, name) || strstr(e->message, "JSON")), "%s: %s", body->data, e->message);
    if (e->param[0]) /* else the body as a whole is not JSON that is read here */
        cr_assert(strncmp(e->param, name, n) == 0 && (e->param[n] == 0 || strchr(".[", e->param[n])), "%s: %s: %s", body->data, e->param, e->message);
    else
        cr_assert(strstr(e->message, "the request body"), "%s: %s", body->data, e->message);
    qr_api_error_put(&text, e, false);
    cr_assert(text.len > strlen(c->form) && memcmp(text.data, c->form, strlen(c->form)) == 0, "%.*s", (int)text.len, text.data);
    cr_assert_eq(qr_json_parse(&v, text.data, text.len, &qr_json_limits_request, &none), 0);
    qr_json_free(v);
    qr_buf_release(&text);
}

/* How many of the values a field does not take; null, the first, has a test of its own. */
static int walk_field(const struct door_case *c, const char *name)
{
    int n_refused = 0;
    for (int i = 1; i < QR_COUNT(values); i++) {
        struct qr_buf body = {0};
        struct qr_api_error e;
        put_body(&body, c, name, values[i]);
        qr_buf_put_byte(&body, 0);
        body.len--;
        if (!takes(c, &body, &e)) {
            n_refused++;
            check_error(c, name, &body, &e);
        }
        qr_buf_release(&body);
    }
    return n_refused;
}

Test(doors, every_field_takes_a_value_or_refuses_it_by_its_own_name)
{
    for (int i = 0; i < QR_COUNT(cases); i++)
        for (int32_t k = 0; k < cases[i].door->n_fields; k++) {
            const char *name = cases[i].door->field[k].name;
            const bool takes_all = is_one_of(name, cases[i].takes_all, QR_COUNT(cases[i].takes_all));
            const int n = walk_field(&cases[i], name);
            cr_assert(takes_all ? n <= 1 : n > 1, "%s: %d values refused", name, n); /* DEEP is more than any body may have */
        }
}

Test(doors, no_field_is_named_twice_and_null_is_as_if_it_were_absent)
{
    for (int i = 0; i < QR_COUNT(cases); i++)
        for (int32_t k = 0; k < cases[i].door->n_fields; k++) {
            const char *name = cases[i].door->field[k].name;
            struct qr_buf body = {0};
            struct qr_api_error e;
            bool required = false;
            for (int32_t j = 0; j < k; j++)
                cr_assert_str_neq(cases[i].door->field[j].name, name);
            for (int j = 0; j < QR_COUNT(cases[i].base); j++)
                required |= cases[i].base[j][0] && strcmp(cases[i].base[j][0], name) == 0;
            put_body(&body, &cases[i], name, "null");
            cr_assert_eq(takes(&cases[i], &body, &e), !required, "%s", name);
            cr_assert(!required || strstr(e.message, "is required"), "%s: %s", name, e.message);
            qr_buf_release(&body);
        }
}
