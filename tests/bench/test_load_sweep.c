/* The rules of a sweep as pure functions, sweeps against a server with a known limit, conditions, goodput and the timeline. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>

#include "bench/load/parts.h"
#include "bench/load/sweep.h"
#include "client/session.h"
#include "tests/bench/load_runner.h"
#include "tests/bench/slot_server.h"
#include "tests/client/fake_server.h"

TestSuite(sweep, .timeout = 120);

/* ---- the rules ---- */

Test(sweep, gain_is_growth_of_throughput_over_growth_of_load)
{
    const struct qr_load_point p[] = {{.load = 1, .output_per_s = 100}, {.load = 2, .output_per_s = 200}, {.load = 3, .output_per_s = 225},
                                      {.load = 6, .output_per_s = 180}};
    cr_expect(isnan(qr_load_gain(p, 0)));
    cr_expect_float_eq(qr_load_gain(p, 1), 1, 1e-12);
    cr_expect_float_eq(qr_load_gain(p, 2), 0.25, 1e-12); /* 12.5 % more for 50 % more load */
    cr_expect_float_eq(qr_load_gain(p, 3), -0.2, 1e-12);
}

Test(sweep, ends_when_more_load_only_makes_answers_slower)
{
    const struct qr_load_rule rule = {.gain = 0.1, .slo_share = 0};
    struct qr_load_point p[] = {{.load = 1, .output_per_s = 100, .ttft_p50_ms = 10, .e2el_p50_ms = 100, .slo_share = 1},
                                {.load = 2, .output_per_s = 109, .ttft_p50_ms = 10, .e2el_p50_ms = 183, .slo_share = 1}};
    cr_expect_eq(qr_load_judge(p, 1, &rule), QR_LOAD_GO_ON);
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_SATURATED, "TTFT stays, E2E grows: a server with a full batch");
    p[1].e2el_p50_ms = 109;
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_GO_ON, "no slower: the load did not arrive, which is not saturation");
    p[1].ttft_p50_ms = 12;
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_SATURATED);
    p[1].output_per_s = 111;
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_GO_ON);
    p[1].lost_share = 0.011;
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_FAILING);
}

Test(sweep, the_slo_is_broken_below_its_share_only)
{
    const struct qr_load_rule rule = {.gain = 0.1, .slo_share = 0.99};
    struct qr_load_point p[] = {{.load = 1, .output_per_s = 10, .slo_share = 1}, {.load = 2, .output_per_s = 20, .slo_share = 0.99},
                                {.load = 4, .output_per_s = 40, .slo_share = 0.989}};
    cr_expect_eq(qr_load_judge(p, 2, &rule), QR_LOAD_GO_ON);
    cr_expect_eq(qr_load_judge(p, 3, &rule), QR_LOAD_SLO_BROKEN);
    cr_expect_eq(qr_load_slo_step(p, 3, &rule), 1);
    p[1].lost_share = 0.5;
    cr_expect_eq(qr_load_slo_step(p, 3, &rule), 0);
    p[0].slo_share = 0;
    cr_expect_eq(qr_load_slo_step(p, 3, &rule), -1);
}

Test(sweep, the_knee_is_the_smallest_load_near_the_best)
{
    struct qr_load_point p[] = {{.load = 1, .output_per_s = 50}, {.load = 2, .output_per_s = 94.9}, {.load = 4, .output_per_s = 95},
                                {.load = 8, .output_per_s = 100}, {.load = 16, .output_per_s = 200, .lost_share = 0.5}};
    cr_expect_eq(qr_load_knee(p, 5), 2);
    cr_expect_eq(qr_load_knee(p, 1), 0);
    cr_expect_eq(qr_load_knee(p, 0), -1);
    p[0].lost_share = 1;
    cr_expect_eq(qr_load_knee(p, 1), -1);
}

/* ---- points, limits, conditions ---- */

static int read_points(struct qr_load_points *p, const char *users, const char *rate, bool sweep)
{
    struct qr_load_options opt = {.users_text = users, .rate_text = rate, .sweep = sweep};
    struct qr_err err;
    return qr_load_points_read(p, &opt, &err);
}

Test(sweep, loads_are_listed_or_doubled)
{
    struct qr_load_points p;
    cr_assert_eq(read_points(&p, "12", NULL, true), 0);
    static const double want[] = {1, 2, 4, 8, 12};
    cr_assert_eq(p.n, 5);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(p.v[i], want[i]);
    cr_assert_eq(read_points(&p, NULL, NULL, true), 0);
    cr_expect(p.n == 9 && p.v[8] == 256 && !p.rates);
    cr_assert_eq(read_points(&p, "1", NULL, true), 0);
    cr_expect(p.n == 1 && p.v[0] == 1);
    cr_assert_eq(read_points(&p, "100000", NULL, true), 0);
    cr_expect(p.n == 18 && p.v[17] == 100000);
    cr_assert_eq(read_points(&p, "3", "0.5,1,2.5", true), 0);
    cr_expect(p.n == 3 && p.rates && p.v[0] == 0.5);
    static const char *const bad[][2] = {{"1,1", NULL}, {"2,1", NULL}, {"1,", NULL}, {",1", NULL}, {"1;2", NULL}, {"x", NULL}, {"", NULL},
                                         {NULL, "5"}, {NULL, "nan"}, {NULL, "-1"}, {"0,1", NULL}, {NULL, "1,2000000"}, {"1,2", "1,2"},
                                         {"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_eq(read_points(&p, bad[i][0], bad[i][1], true), QR_E_USAGE, "%s %s", bad[i][0], bad[i][1]);
    cr_expect_eq(read_points(&p, "1,2", NULL, false), QR_E_USAGE);
    cr_expect_eq(read_points(&p, "8", "0", false), 0);
}

Test(sweep, limits_are_read_with_and_without_units)
{
    static const struct {
        const char *text;
        double ttft, tpot, e2el;
    } cases[] = {
        {"ttft:200", 200, -1, -1},
        {"ttft:200ms,tpot:0.05s,e2el:5s", 200, 50, 5000},
        {"e2el:1m", -1, -1, 60000},
        {"tpot:500us", -1, 0.5, -1},
        {"tpot:0", -1, 0, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *item[] = {cases[i].text};
        struct qr_str_list list = {.item = item, .n = 1};
        struct qr_load_slo slo;
        struct qr_err err;
        cr_assert_eq(qr_load_slo_parse(&slo, &list, &err), 0, "%s", cases[i].text);
        cr_expect_float_eq(slo.ttft_ms, cases[i].ttft, 1e-9, "%s", cases[i].text);
        cr_expect_float_eq(slo.tpot_ms, cases[i].tpot, 1e-9, "%s", cases[i].text);
        cr_expect_float_eq(slo.e2el_ms, cases[i].e2el, 1e-9, "%s", cases[i].text);
    }
}

Test(sweep, conditions_compare_as_they_say)
{
    static const struct {
        const char *text;
        int32_t held; /* -1: refused */
    } cases[] = {
        {"a>2", 1}, {"a>3", 0}, {"a>=3", 1}, {"a<3", 0}, {"a<=3", 1}, {"a<3.5", 1}, {"a > 2", 1}, {"none>0", 1}, {"errors_by_class.HTTP 429>1", 1},
        {"errors_by_class.timeout>0", 0}, {"errors_by_class.timeout<=0", 1}, {"a", -1}, {"a=3", -1}, {"a>", -1}, {">3", -1}, {"a>x", -1},
        {"a>3x", -1}, {"a>>3", -1}, {"a>inf", -1}, {"", -1}, {"a==3", -1},
    };
    struct qr_buf report = {0}, out = {0};
    qr_buf_put_str(&report, "{\"a\":3,\"none\":null,\"errors_by_class\":{\"HTTP 429\":2}}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *item[] = {cases[i].text};
        struct qr_str_list list = {.item = item, .n = 1};
        struct qr_load_conditions c;
        struct qr_err err;
        int rc = qr_load_conditions_parse(&c, &list, &err);
        cr_expect_eq(rc, cases[i].held < 0 ? QR_E_USAGE : 0, "%s", cases[i].text);
        if (rc == 0)
            cr_expect_eq(qr_load_conditions_held(&c, &report, &out), cases[i].held, "%s", cases[i].text);
    }
    cr_expect(strstr(out.data, "failed: a>2 (a is 3)\n") != NULL, "%s", out.data);
    cr_expect(strstr(out.data, "failed: none>0 (none has no value in this run)\n") != NULL, "%s", out.data);
    qr_buf_release(&report);
    qr_buf_release(&out);
}

/* ---- the timeline ---- */

Test(sweep, a_timeline_keeps_its_sums_when_it_folds)
{
    struct qr_load_timeline *t = malloc(sizeof *t);
    const int64_t begin = 1000000007, ms = 1000000;
    qr_load_timeline_init(t, begin);
    qr_load_timeline_running(t, begin, 1);
    for (int64_t i = 0; i < 60000; i++) { /* a token each ms for a minute; 3 running from 20 s to 40.0005 s */
        qr_load_timeline_token(t, begin + i * ms);
        if (i == 20000)
            qr_load_timeline_running(t, begin + i * ms, 3);
        if (i == 40000)
            qr_load_timeline_running(t, begin + i * ms + ms / 2, 1);
    }
    qr_load_timeline_running(t, begin + 60000 * ms - 1, 0);
    int64_t n = 0;
    double running = 0;
    for (int32_t i = 0; i < QR_LOAD_BUCKETS; i++) {
        n += t->n_tokens[i];
        running += t->running_ns[i];
    }
    cr_expect_eq(n, 60000);
    cr_expect_float_eq(running / 1e9, 60 + 2 * 20.0005, 1e-6);
    cr_expect_eq(t->width_ns, 160 * ms, "60 s in buckets of 10 ms * 2^k, 512 at most");
    cr_expect_eq(t->n, 375);
    cr_expect_eq(t->n_tokens[7], 160);
    cr_expect_float_eq(t->running_ns[200] / (double)t->width_ns, 3, 1e-9); /* 32 s */
    free(t);
}

/* ---- against a server ---- */

/* A stall in one step can make a sweep end a step early or late. The last of up to five runs that `good` is asked about is what counts; n_posts is
 * set back before each but the first. */
static struct outcome run_until_good(int32_t port, const char *flags, bool good(const struct outcome *o), int32_t *n_posts)
{
    struct outcome o = run_load(port, flags);
    for (int tries = 1; tries < 5 && !(o.status == 0 && good(&o)); tries++) {
        fprintf(stderr, "run %d was disturbed, or is wrong:\n%s", tries, o.out.data);
        drop(&o);
        *n_posts = 0;
        o = run_load(port, flags);
    }
    return o;
}

static bool ended_at_four(const struct outcome *o)
{
    return figure(o, "saturated") == 1 && figure(o, "n_steps") <= 4 && figure(o, "knee_load") <= 4;
}

static bool went_to_three(const struct outcome *o)
{
    return figure(o, "saturated") == 0 && figure(o, "n_steps") == 3 && figure(o, "knee_load") == 3 && figure(o, "slo_load") == 3;
}

static bool cut_off_in_the_second(const struct outcome *o)
{
    return figure(o, "n_steps") == 2 && figure(o, "knee_load") == 5;
}

static double completed_first(const struct outcome *o)
{
    const struct qr_json *report = qr_json_find(qr_json_first(qr_json_find(o->json, "steps")), "report");
    cr_assert(report != NULL);
    return qr_json_f64(qr_json_find(report, "completed"));
}

static bool was_long(const struct outcome *o)
{
    return completed_first(o) > 32;
}

Test(sweep, finds_where_a_server_with_one_slot_is_full)
{
    int32_t n_posts = 0;
    struct slot_server s = slot_start(10000);
    struct outcome o = run_until_good(s.port, "--sweep --users 32 --num-requests 24 --output-len 4 --input-len 5", ended_at_four, &n_posts);
    cr_assert_eq(o.status, 0, "%s%s", o.out.data, o.err.data);
    /* One request at a time: a second user can only wait. An idle machine ends it at 2 users; a stall in one step may cost another one or
     * two. */
    cr_expect_eq(figure(&o, "saturated"), 1, "%s", o.out.data);
    cr_expect_leq(figure(&o, "n_steps"), 4, "%s", o.out.data);
    cr_expect_leq(figure(&o, "knee_load"), 4, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "ended       at ") != NULL && strstr(o.out.data, " the server is saturated: 100 % more load, ") != NULL &&
                  strstr(o.out.data, " left out\n") != NULL, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "The sweep ends when") != NULL);
    const struct qr_json *step = qr_json_first(qr_json_find(o.json, "steps"));
    for (int i = 0; step != NULL; step = qr_json_after(step), i++) {
        cr_expect_eq(qr_json_f64(qr_json_find(step, "load")), 1 << i);
        cr_expect_eq(qr_json_f64(qr_json_find(qr_json_find(step, "report"), "completed")), 24, "warm-up requests are not counted");
    }
    drop(&o);
    slot_stop(s);
}

Test(sweep, goes_to_its_last_load_when_the_server_keeps_up)
{
    struct fake_script script = fake_tokens(0);
    script.first_us = 20000;
    struct fake_server *s = fake_start(script);
    struct outcome o = run_until_good(s->port, "--sweep --users 1,2,3 --num-requests 12 --output-len 4 --input-len 5 --slo ttft:5s,e2el:9s --sweep-gain 0",
                                      went_to_three, &s->n_posts);
    cr_assert_eq(o.status, 0, "%s%s", o.out.data, o.err.data);
    cr_expect_eq(figure(&o, "saturated"), 0, "%s", o.out.data);
    cr_expect_eq(figure(&o, "n_steps"), 3, "%s", o.out.data);
    cr_expect_eq(figure(&o, "knee_load"), 3, "%s", o.out.data);
    cr_expect_eq(figure(&o, "slo_load"), 3, "%s", o.out.data);
    cr_expect_eq(s->n_posts, 3 * 12 + 1 + 2 + 3, "one uncounted request for each user of each step");
    drop(&o);
    o = run_load(s->port, "--sweep --users 1,2,3 --num-requests 6 --output-len 4 --input-len 5 --slo ttft:5ms");
    cr_expect_eq(figure(&o, "n_steps"), 1, "%s", o.out.data);
    cr_expect_eq(figure(&o, "slo_load"), 0, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "0.0 % of the requests met the SLO") != NULL, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "kept by no step") != NULL, "%s", o.out.data);
    drop(&o);
    fake_stop(s);
}

Test(sweep, cuts_a_step_off_that_takes_too_long)
{
    int32_t n_posts = 0;
    struct slot_server s = slot_start(50000); /* 20 requests/s at most */
    /* 200 requests/s for 0.4 s are 80, of which 1.2 s answer 24. */
    struct outcome o = run_until_good(s.port, "--sweep --rate 5,200,400 --duration 400ms --output-len 2 --input-len 5 --warmups 1", cut_off_in_the_second,
                                      &n_posts);
    cr_expect_eq(o.status, 0, "%s", o.err.data);
    cr_expect_eq(figure(&o, "n_steps"), 2, "%s", o.out.data);
    cr_expect_eq(figure(&o, "knee_load"), 5, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "failed or were cut off") != NULL, "%s", o.out.data);
    drop(&o);
    slot_stop(s);
}

Test(sweep, a_step_on_a_fast_server_lasts_long_enough_to_be_measured)
{
    int32_t n_posts = 0;
    struct slot_server s = slot_start(1000);
    struct outcome o = run_until_good(s.port, "--sweep --users 1 --output-len 2 --input-len 5", was_long, &n_posts);
    cr_expect_eq(o.status, 0, "%s", o.err.data);
    const struct qr_json *report = qr_json_find(qr_json_first(qr_json_find(o.json, "steps")), "report");
    cr_assert(report != NULL);
    /* 2 s by the rate of the one request of the warm-up, which a stall of 20 ms would make 100 requests. */
    cr_expect_gt(completed_first(&o), 32, "%s", o.out.data);
    cr_expect_lt(qr_json_f64(qr_json_find(report, "duration")), 60, "%s", o.out.data);
    drop(&o);
    slot_stop(s);
}

Test(sweep, a_time_limit_and_a_signal_end_it_too)
{
    struct fake_script script = fake_tokens(0);
    script.first_us = 100000;
    struct fake_server *s = fake_start(script);
    struct outcome o = run_load(s->port, "--sweep --users 4 --num-requests 2 --output-len 2 --sweep-time 150ms");
    cr_expect_eq(o.status, 0);
    cr_expect_eq(figure(&o, "n_steps"), 1, "%s", o.out.data);
    cr_expect(strstr(o.out.data, "--sweep-time is over") != NULL, "%s", o.out.data);
    drop(&o);
    o = run_load_until(s->port, "--sweep --users 4 --num-requests 100 --output-len 2", s, s->n_posts + 3);
    cr_expect_eq(o.status, 130);
    cr_expect(strstr(o.out.data, "a signal stopped it") != NULL, "%s", o.out.data);
    drop(&o);
    fake_stop(s);
}

Test(sweep, conditions_set_the_exit_code_and_are_printed)
{
    struct fake_script script = fake_tokens(0);
    script.first_us = 20000;
    struct fake_server *s = fake_start(script);
    struct outcome o = run_load(s->port, "--users 2 --num-requests 6 --output-len 2 --fail-if p99_ttft_ms>1 --fail-if failed>0");
    cr_expect_eq(o.status, 6);
    cr_expect(strstr(o.err.data, "failed: p99_ttft_ms>1 (p99_ttft_ms is ") != NULL, "%s", o.err.data);
    cr_expect(strstr(o.err.data, "failed>0 (") == NULL, "%s", o.err.data);
    cr_expect_geq(figure(&o, "p99_ttft_ms"), 15); /* 20 by timers of a millisecond */
    cr_expect_eq(figure(&o, "completed"), 6);
    drop(&o);
    o = run_load(s->port, "--users 2 --num-requests 6 --output-len 2 --fail-if p99_ttft_ms>60000 --fail-if completed<6");
    cr_expect_eq(o.status, 0, "%s", o.err.data);
    drop(&o);
    int32_t n_posts = s->n_posts;
    o = run_load(s->port, "--users 2 --num-requests 6 --fail-if p99_tfft_ms>1");
    cr_expect_eq(o.status, 2);
    cr_expect(strstr(o.err.data, "did you mean 'p99_ttft_ms'?") != NULL, "%s", o.err.data);
    drop(&o);
    o = run_load(s->port, "--users 2 --num-requests 6 --fail-if request_goodput<1");
    cr_expect_eq(o.status, 2);
    cr_expect(strstr(o.err.data, "without an --slo") != NULL, "%s", o.err.data);
    drop(&o);
    cr_expect_eq(s->n_posts, n_posts, "found before anything was sent");
    o = run_load(s->port, "--sweep --users 2 --num-requests 6 --output-len 2 --slo ttft:30s --fail-if slo_load<2 --fail-if knee_load<1");
    cr_expect_eq(o.status, 0, "%s", o.err.data);
    drop(&o);
    o = run_load(s->port, "--sweep --users 2 --num-requests 6 --output-len 2 --fail-if knee_load<9");
    cr_expect_eq(o.status, 6, "%s", o.err.data);
    drop(&o);
    fake_stop(s);
}

Test(sweep, wrong_usage_is_refused)
{
    static const struct {
        const char *flags, *says;
    } cases[] = {
        {"--sweep --rate 5", "needs a list of rates"}, {"--sweep --users 2,1", "must grow"},     {"--sweep --trace /x", "--trace-scale"},
        {"--sweep --users 0,4", "leave the 0 away"},   {"--fail-if p99_ttft_ms", "KEY>NUMBER"}, {"--sweep --fail-if p99_ttft_ms>1", "no figure"},
    };
    struct fake_server *s = fake_start(fake_tokens(2));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct outcome o = run_load(s->port, cases[i].flags);
        cr_expect_eq(o.status, 2, "%s: %d %s", cases[i].flags, o.status, o.err.data);
        cr_expect(strstr(o.err.data, cases[i].says) != NULL, "%s: %s", cases[i].flags, o.err.data);
        drop(&o);
    }
    fake_stop(s);
}

/* In this very process, so that the leak check at its end sees the paths. */
Test(sweep, leaks_nothing)
{
    struct fake_server *s = fake_start(fake_tokens(0));
    cr_expect_eq(load_here(s->port, "--sweep --users=4 --num-requests=4 --slo=ttft:30s"), 0);
    cr_expect_eq(load_here(s->port, "--sweep --rate=5,10 --duration=1s --fail-if=knee_load<1"), 0);
    cr_expect_eq(load_here(s->port, "--sweep --users=4 --num-requests=4 --fail-if=x<1"), 2);
    cr_expect_eq(load_here(s->port, "--num-requests=4 --fail-if=completed<=4"), 6);
    fake_stop(s);
}
