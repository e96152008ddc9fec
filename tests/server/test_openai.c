#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/option.h"
#include "server/api_error.h"
#include "server/openai.h"
#include "server/route.h"
#include "server/server.h"

static const struct qr_params_context plain = {.ctx_max = 4096, .vocab = 1000};

static int parse(struct qr_params *p, enum qr_api api, const char *body, struct qr_err *err)
{
    *err = (struct qr_err){0};
    return qr_params_parse(p, api, body, strlen(body), &plain, err);
}

Test(openai, leaves_out_what_is_left_out)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\"}", &err), 0, "%s", err.msg);
    cr_assert_eq(p.max_tokens, -1);
    cr_assert_float_eq(p.sampling.temperature, 1, 0);
    cr_assert_float_eq(p.sampling.top_p, 1, 0);
    cr_assert_eq(p.sampling.n_logprobs, -1);
    cr_assert_eq(p.sampling.n_prompt_logprobs, -1);
    cr_assert(p.add_special && p.sampling.skip_special && !p.stream);
    qr_params_release(&p);
}

Test(openai, takes_defaults_from_generation_config_and_overrides_them)
{
    struct qr_model_config model = {.gen = {[QR_P_temperature] = {true, 0.6},
                                             [QR_P_top_p] = {true, 0.9}, [QR_P_repetition] = {true, 1.1}, [QR_P_top_k] = {true, 20}}};
    struct qr_params_context context = {.ctx_max = 100, .vocab = 100, .model = &model};
    struct qr_params p;
    struct qr_err err = {0};
    const char *bare = "{\"prompt\":\"a\"}", *own = "{\"prompt\":\"a\",\"temperature\":0,\"top_p\":1,\"top_k\":-1,\"repetition_penalty\":1}";
    cr_assert_eq(qr_params_parse(&p, QR_API_COMPLETIONS, bare, strlen(bare), &context, &err), 0);
    cr_assert_float_eq(p.sampling.temperature, 0.6f, 0);
    cr_assert_float_eq(p.sampling.top_p, 0.9f, 0);
    cr_assert_float_eq(p.sampling.min_p, 0, 0);
    cr_assert_float_eq(p.sampling.repetition, 1.1f, 0);
    cr_assert_eq(p.sampling.top_k, 20);
    qr_params_release(&p);
    cr_assert_eq(qr_params_parse(&p, QR_API_COMPLETIONS, own, strlen(own), &context, &err), 0);
    cr_assert_float_eq(p.sampling.temperature, 0, 0);
    cr_assert_float_eq(p.sampling.top_p, 1, 0);
    cr_assert_eq(p.sampling.top_k, 0);
    cr_assert_float_eq(p.sampling.repetition, 1, 0);
    qr_params_release(&p);
}

Test(openai, keeps_all_64_bits_of_a_seed)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\",\"seed\":9007199254740993}", &err), 0);
    cr_assert_eq(p.sampling.seed, 9007199254740993ull);
    qr_params_release(&p);
}

Test(openai, the_newer_name_of_max_tokens_wins)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_CHAT, "{\"max_completion_tokens\":7,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":9}", &err), 0);
    cr_assert_eq(p.max_tokens, 7);
    qr_params_release(&p);
}

Test(openai, names_are_case_sensitive)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\",\"MAX_TOKENS\":3}", &err), 0);
    cr_assert_eq(p.max_tokens, -1, "an unknown field is ignored");
    qr_params_release(&p);
}

Test(openai, echo_with_logprobs_asks_for_those_of_the_prompt)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":3,\"max_tokens\":0}", &err), 0);
    cr_assert_eq(p.sampling.n_prompt_logprobs, 3);
    cr_assert(!p.prompt_logprobs);
    qr_params_release(&p);
}

#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define OTHER "{\"type\":\"custom\"}"

Test(openai, a_demand_keeps_its_place_and_how_it_is_meant)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_CHAT, "{" SAID ",\"response_format\":"
                       "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"strict\":true}}}", &err), 0, "%s", err.msg);
    cr_assert_eq(p.demand.kind, QR_CONSTRAINT_SCHEMA);
    cr_assert(p.demand.strict && !p.demand.compact && p.demand.value);
    cr_assert_str_eq(p.demand.field, "response_format.json_schema.schema");
    qr_params_release(&p);
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\",\"structured_outputs\":"
                       "{\"grammar\":\"start: A\",\"disable_any_whitespace\":true}}", &err), 0);
    cr_assert_eq(p.demand.kind, QR_CONSTRAINT_LARK);
    cr_assert(p.demand.compact && !p.demand.strict);
    qr_params_release(&p);
    cr_assert_eq(parse(&p, QR_API_COMPLETIONS, "{\"prompt\":\"a\",\"grammar\":\"root ::= a\"}", &err), 0);
    cr_assert_eq(p.demand.kind, QR_CONSTRAINT_GBNF);
    qr_params_release(&p);
}

Test(openai, tools_that_may_be_called_know_their_places)
{
    struct qr_params p;
    struct qr_err err;
    cr_assert_eq(parse(&p, QR_API_CHAT, "{" SAID ",\"tools\":[" OTHER "," TOOL("a") "," TOOL("b") "," TOOL("c") "],\"tool_choice\":"
                       "{\"type\":\"allowed_tools\",\"allowed_tools\":"
                       "{\"mode\":\"required\",\"tools\":[" TOOL("c") "," TOOL("b") "]}}}", &err), 0, "%s", err.msg);
    cr_assert_eq(p.tools.calls, QR_CALL_REQUIRED);
    cr_assert_eq(qr_json_count(p.tools.shown), 3, "the template is shown all functions");
    cr_assert_eq(qr_json_count(p.tools.callable), 2);
    cr_assert(p.tools.place[0] == 2 && p.tools.place[1] == 3);
    cr_assert(p.tools.parallel);
    qr_params_release(&p);
    cr_assert_eq(parse(&p, QR_API_CHAT, "{" SAID ",\"tools\":[" TOOL("a") "," TOOL("b") "],\"tool_choice\":" TOOL("b")
                       ",\"parallel_tool_calls\":false}", &err), 0);
    cr_assert_eq(qr_json_count(p.tools.callable), 1);
    cr_assert(p.tools.place[0] == 1 && !p.tools.parallel && p.tools.calls == QR_CALL_REQUIRED);
    qr_params_release(&p);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(parse(&p, QR_API_CHAT, i ? "{" SAID ",\"tools\":[" TOOL("a") "],\"tool_choice\":\"none\"}" : "{" SAID ",\"tools\":[" OTHER "]}", &err), 0);
        cr_assert(!p.tools.shown && !p.tools.callable && p.tools.calls == QR_CALL_NONE);
        qr_params_release(&p);
    }
}

Test(openai, thinking_is_told_to_the_template)
{
    static const struct { const char *more, *kwargs; bool off; } row[] = {
        {"", NULL, false},
        {",\"enable_thinking\":true", "{\"enable_thinking\":true,\"thinking\":true}", false},
        {",\"enable_thinking\":false", "{\"enable_thinking\":false,\"thinking\":false}", true},
        {",\"reasoning_effort\":\"none\"", "{\"enable_thinking\":false,\"thinking\":false,\"reasoning_effort\":\"none\"}", true},
        {",\"reasoning_effort\":\"low\"", "{\"reasoning_effort\":\"low\"}", false},
        {",\"chat_template_kwargs\":{\"enable_thinking\":false}", "{\"enable_thinking\":false}", true},
        {",\"chat_template_kwargs\":{\"enable_thinking\":true,\"k\":1},\"enable_thinking\":false",
         "{\"enable_thinking\":true,\"k\":1,\"thinking\":false}", false},
    };
    for (int i = 0; i < QR_COUNT(row); i++) {
        struct qr_params p;
        struct qr_err err;
        struct qr_buf body = {0}, kwargs = {0};
        qr_buf_printf(&body, "{" SAID "%s}", row[i].more);
        cr_assert_eq(parse(&p, QR_API_CHAT, body.data, &err), 0, "%s", err.msg);
        if (p.template_kwargs)
            qr_json_print(&kwargs, p.template_kwargs);
        cr_assert_str_eq(kwargs.data ? kwargs.data : "", row[i].kwargs ? row[i].kwargs : "");
        cr_assert_eq(p.thinking.off, row[i].off, "%s", row[i].more);
        qr_buf_release(&body);
        qr_buf_release(&kwargs);
        qr_params_release(&p);
    }
}

/* docs/api.md is the client's side of the table: every field must be in it. */
Test(openai, every_field_and_route_is_documented)
{
    FILE *f = fopen(QUIRE_SOURCE_DIR "/docs/api.md", "rb");
    cr_assert_not_null(f);
    static char text[200000];
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = 0;
    int32_t n;
    const struct qr_field *field = qr_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "`%s`", field[i].name);
        cr_assert_not_null(strstr(text, quoted), "docs/api.md does not mention %s", field[i].name);
    }
    const struct qr_route *route = qr_routes(&n);
    for (int32_t i = 0; i < n; i++)
        cr_assert_not_null(strstr(text, route[i].path), "docs/api.md does not mention %s", route[i].path);
}

Test(api_error, has_five_keys_and_escapes_what_it_quotes)
{
    struct qr_api_error e;
    struct qr_buf b = {0};
    qr_api_error_set(&e, 404, "model_not_found", "The model '%s' does not exist.", "a\"\n\x01");
    qr_api_error_put(&b, &e, false);
    cr_assert_str_eq(b.data, "{\"error\":{\"message\":\"The model 'a\\\"\\n\\u0001' does not exist.\",\"type\":\"invalid_request_error\","
                             "\"param\":null,\"code\":\"model_not_found\",\"id\":\"Q111\"}}");
    qr_buf_release(&b);
}
