#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

Test(api_error, has_four_keys_and_escapes_what_it_quotes)
{
    struct qr_api_error e;
    struct qr_buf b = {0};
    qr_api_error_set(&e, 404, "model_not_found", "The model '%s' does not exist.", "a\"\n\x01");
    qr_api_error_put(&b, &e);
    cr_assert_str_eq(b.data, "{\"error\":{\"message\":\"The model 'a\\\"\\n\\u0001' does not exist.\",\"type\":\"invalid_request_error\","
                             "\"param\":null,\"code\":\"model_not_found\"}}");
    qr_buf_release(&b);
}
