#include <criterion/criterion.h>
#include <string.h>

#include "server/api_error.h"
#include "server/limits.h"

#define S 1000000 /* a second */

static struct qr_api_error why;

static bool enter(struct qr_key_state *s, const struct qr_key_terms *t, int64_t now_us)
{
    return qr_limits_enter(s, t, "k", true, now_us, &why);
}

Test(limits, a_minutes_requests_pass_at_once_and_then_one_as_each_leaks_out)
{
    const struct qr_key_terms t = {.rpm = 6};
    struct qr_key_state s = {0};
    for (int i = 0; i < 6; i++)
        cr_assert(enter(&s, &t, 100 * S));
    cr_assert(!enter(&s, &t, 100 * S));
    cr_assert(why.status == 429 && why.retry_after_s == 10 && strcmp(why.code, "rate_limit_exceeded") == 0, "%d", why.retry_after_s);
    cr_assert(strstr(why.message, "key k on requests per min (RPM): Limit 6, Used 6."), "%s", why.message);
    cr_assert(!enter(&s, &t, 109 * S));
    cr_assert_eq(why.retry_after_s, 1);
    cr_assert(enter(&s, &t, 110 * S));
    cr_assert(!enter(&s, &t, 110 * S));
    for (int i = 0; i < 6; i++)
        cr_assert(enter(&s, &t, 170 * S));
    cr_assert(!enter(&s, &t, 170 * S));
}

Test(limits, as_many_run_at_once_as_are_granted)
{
    const struct qr_key_terms t = {.concurrent = 2};
    struct qr_key_state s = {0};
    cr_assert(enter(&s, &t, 1) && enter(&s, &t, 1) && !enter(&s, &t, 1));
    cr_assert(why.status == 429 && why.retry_after_s == 1 && strstr(why.message, "Limit 2"), "%s", why.message);
    qr_limits_leave(&s, 0);
    cr_assert(enter(&s, &t, 1) && !enter(&s, &t, 1));
}

Test(limits, tokens_pass_their_limit_by_no_more_than_one_call)
{
    const struct qr_key_terms t = {.tpm = 100};
    struct qr_key_state s = {0};
    int n = 0;
    for (int i = 0; i < 32; i++) {
        cr_assert(enter(&s, &t, S) == (n < 3));
        n += n < 3 && qr_limits_reserve(&s, &t, "k", 40, S, &why);
    }
    cr_assert(n == 3 && s.reserved_tokens == 120);
    qr_limits_spend(&s, &t, 10, S); /* of one, which ends and gives 30 back */
    qr_limits_leave(&s, 30);
    cr_assert(s.reserved_tokens == 80 && s.tokens.used == 10);
    cr_assert(enter(&s, &t, S));
    cr_assert(qr_limits_reserve(&s, &t, "k", 1000, S, &why));
    cr_assert(!qr_limits_reserve(&s, &t, "k", 1, S, &why) && why.status == 429);
}

Test(limits, used_tokens_leak_out_in_a_minute_and_reserved_ones_do_not)
{
    const struct qr_key_terms t = {.tpm = 60};
    struct qr_key_state s = {0};
    cr_assert(enter(&s, &t, S) && qr_limits_reserve(&s, &t, "k", 90, S, &why));
    qr_limits_spend(&s, &t, 60, S);
    cr_assert(!enter(&s, &t, S));
    cr_assert_eq(why.retry_after_s, 31);
    cr_assert(strstr(why.message, "Limit 60, Used 60, of running requests 30"), "%s", why.message);
    cr_assert(!enter(&s, &t, 31 * S) && enter(&s, &t, 32 * S));
    qr_limits_leave(&s, 30);
    cr_assert(s.reserved_tokens == 0 && s.tokens.used > 28 && s.tokens.used < 30);
}

Test(limits, a_call_that_needs_no_tokens_runs_without_them)
{
    const struct qr_key_terms t = {.tpm = 1};
    struct qr_key_state s = {.tokens = {5, S}};
    cr_assert(!enter(&s, &t, S) && qr_limits_enter(&s, &t, "k", false, S, &why));
}

Test(limits, an_answers_head_says_limits_as_openai_does)
{
    char out[QR_LIMITS_FIELDS_MAX];
    struct qr_key_terms t = {0};
    struct qr_key_state s = {0};
    cr_assert_str_eq(qr_limits_fields(out, &s, &t, S), "");
    t = (struct qr_key_terms){.rpm = 60, .tpm = 600};
    cr_assert(enter(&s, &t, S) && qr_limits_reserve(&s, &t, "k", 100, S, &why));
    qr_limits_spend(&s, &t, 25, S);
    cr_assert_str_eq(qr_limits_fields(out, &s, &t, S), "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"
                     "x-ratelimit-reset-requests: 1s\r\nx-ratelimit-limit-tokens: 600\r\nx-ratelimit-remaining-tokens: 500\r\n"
                     "x-ratelimit-reset-tokens: 10s\r\n");
    cr_assert(strstr(qr_limits_fields(out, &s, &t, S + S / 2), "reset-requests: 500ms"), "%s", out);
    t = (struct qr_key_terms){.rpm = 1000000000, .tpm = 1000000000000};
    s = (struct qr_key_state){.requests = {1e9, S}, .tokens = {1e18, S}, .reserved_tokens = INT64_MAX / 2};
    cr_assert(strstr(qr_limits_fields(out, &s, &t, S), "remaining-tokens: 0\r\n"), "%s", out);
}

Test(limits, a_limit_that_changes_keeps_what_was_used)
{
    struct qr_key_terms t = {.rpm = 2};
    struct qr_key_state s = {0};
    cr_assert(enter(&s, &t, S) && enter(&s, &t, S) && !enter(&s, &t, S));
    t.rpm = 3;
    cr_assert(enter(&s, &t, S) && !enter(&s, &t, S));
    t.rpm = 0;
    cr_assert(enter(&s, &t, S));
}
