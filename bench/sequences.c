#include "bench/sequences.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "bench/drive.h"

static int open_engine(struct qr_drive *d, const struct qr_sequences_case *c, int32_t running, struct qr_err *err)
{
    struct qr_engine_config config;
    qr_engine_config_init(&config);
    config.running_max = running;
    config.waiting_max = c->n;
    config.step_tokens_max = c->chunk > running ? c->chunk : running;
    config.chunk_tokens_max = c->chunk;
    config.kv_tokens = (int64_t)running * (c->n_prompt + c->n_generate + config.block_tokens);
    config.itl_goal_us = 0;
    return qr_drive_open(d, c->model, &config, &c->backend, &c->options, err);
}

static int run(struct qr_drive *d, const struct qr_sequences_case *c, struct qr_err *err)
{
    struct qr_sampling s;
    int rc = 0;
    qr_sampling_init(&s);
    s.temperature = 0;
    s.ignore_eos = true;
    s.max_tokens = c->n_generate;
    while (rc == 0 && d->n_made < c->n)
        rc = qr_drive_submit(d, &s, c->n_prompt, err);
    while (rc == 0 && d->n_open > 0)
        qr_drive_pump(d);
    if (rc == 0 && d->err.code != 0) {
        *err = d->err;
        rc = err->code;
    }
    return rc;
}

static void conclude(struct qr_sequences_figures *out, const struct qr_stats *a, const struct qr_stats *b)
{
    const double n = b->n_steps > a->n_steps ? (double)(b->n_steps - a->n_steps) : 1;
    out->n_steps = (int64_t)(b->n_steps - a->n_steps);
    out->step_us = 1e6 * out->seconds / n;
    for (int i = 0; i < QR_PARTS; i++) {
        out->part_us[i] = (double)(b->part_ns[i] - a->part_ns[i]) * 1e-3 / n;
        out->host_us += i == QR_PART_WAIT || i == QR_PART_IDLE ? 0 : out->part_us[i];
    }
    out->idle_share = (double)(b->unfed_ns - a->unfed_ns) * 1e-9 / out->seconds;
}

int qr_bench_sequences(struct qr_sequences_figures *out, const struct qr_sequences_case *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(c->n > 0 && c->n_prompt > 0 && c->n_generate > 0 && c->chunk > 0);
    struct qr_drive d = {0};
    struct qr_stats before, after;
    const int64_t opened_us = qr_clock_us();
    *out = (struct qr_sequences_figures){.running = c->running > 0 && c->running < c->n ? c->running : c->n};
    int rc = open_engine(&d, c, out->running, err);
    if (rc == 0 && qr_engine_limits(d.engine)->ctx_max < c->n_prompt + c->n_generate)
        rc = qr_err_set(err, QR_E_USAGE, "--prompt %d and --generate %d: expected %d tokens together at most, the model's context", c->n_prompt, c->n_generate,
                        qr_engine_limits(d.engine)->ctx_max);
    if (rc == 0) {
        const int64_t began_us = qr_clock_us();
        qr_engine_stats(d.engine, &before);
        rc = run(&d, c, err);
        out->seconds = (double)(qr_clock_us() - began_us) * 1e-6;
        out->open_s = (double)(began_us - opened_us) * 1e-6;
        out->first_s = (double)(d.first_us - began_us) * 1e-6;
        out->n_output = d.n_output;
        out->device = !qr_engine_limits(d.engine)->on_host;
        do /* the last event comes before the last step is counted */
            qr_engine_stats(d.engine, &after);
        while (rc == 0 && after.n_inside > 0 && usleep(100) == 0);
        conclude(out, &before, &after);
    }
    qr_drive_close(&d);
    return rc;
}

static void print_json(const struct qr_sequences_figures *f, const struct qr_sequences_case *c)
{
    printf("{\"case\":\"sequences\",\"sequences\":%d,\"running\":%d,\"prompt\":%d,\"generate\":%d,\"seconds\":%.3f,\"tok_s\":%.2f,\"all_tok_s\":%.2f,"
           "\"first_tokens_s\":%.3f,\"open_s\":%.3f,\"steps\":%lld,\"step_us\":%.1f", c->n, f->running, c->n_prompt, c->n_generate, f->seconds,
           (double)f->n_output / f->seconds, ((double)f->n_output + (double)c->n * c->n_prompt) / f->seconds, f->first_s, f->open_s, (long long)f->n_steps,
           f->step_us);
    if (f->device)
        printf(",\"host_us_per_step\":%.2f,\"device_idle_share\":%.5f", f->host_us, f->idle_share);
    printf(",\"parts_us\":{");
    for (int i = 0; i < QR_PARTS; i++)
        printf("%s\"%s\":%.2f", i > 0 ? "," : "", qr_step_part_name((enum qr_step_part)i), f->part_us[i]);
    printf("}}\n");
}

void qr_sequences_print(const struct qr_sequences_figures *f, const struct qr_sequences_case *c, bool json)
{
    QR_ASSERT(f != NULL && c != NULL);
    QR_ASSERT(f->seconds > 0);
    if (json) {
        print_json(f, c);
        return;
    }
    printf("%d sequences, %d at once, %d + %d tokens each: %.2f s, %.1f tok/s generated, %.1f with prompts; all had begun after %.2f s, model open in %.2f s\n",
           c->n, f->running, c->n_prompt, c->n_generate, f->seconds, (double)f->n_output / f->seconds,
           ((double)f->n_output + (double)c->n * c->n_prompt) / f->seconds, f->first_s, f->open_s);
    printf("%lld steps of %.1f us:", (long long)f->n_steps, f->step_us);
    for (int i = 0; i < QR_PARTS; i++)
        printf(" %s %.1f", qr_step_part_name((enum qr_step_part)i), f->part_us[i]);
    if (f->device)
        printf("; host %.1f, device without work at most %.2f %%", f->host_us, 100 * f->idle_share);
    printf("\n");
}
