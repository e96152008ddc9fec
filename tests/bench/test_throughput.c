/* The offline benchmark: its probes, its table as JSON, cases that do not fit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "bench/kern/probe.h"
#include "bench/shapes.h"
#include "tests/run_main.h"

TestSuite(throughput, .timeout = 120);

Test(throughput, probes_find_more_in_tiles_than_in_vectors)
{
    const char *names[8];
    int32_t n = qr_cpu_levels(names);
    for (int32_t l = 0; l < n; l++) {
        struct qr_backend *be;
        struct qr_err err;
        struct qr_backend_options bo = {.isa = names[l], .n_threads = 1};
        cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
        double f32 = qr_probe_ops_s(be->queue, 1, names[l], QR_PROBE_F32, 3), bf16 = qr_probe_ops_s(be->queue, 1, names[l], QR_PROBE_BF16, 3);
        for (int tries = 0; tries < 20 && strcmp(names[l], "amx") == 0 && bf16 <= 2 * f32; tries++) { /* a probe is short, and a stall may cover it */
            usleep(50000);
            bf16 = fmax(bf16, qr_probe_ops_s(be->queue, 1, names[l], QR_PROBE_BF16, 3));
        }
        bool loops = qr_probe_name(names[l], QR_PROBE_F32) != NULL;
        cr_expect_eq(loops, f32 > 0, "%s", names[l]);
        cr_expect(!loops || f32 > 1e9, "%s: %g operations a second", names[l], f32); /* a tenth of one chain's rate */
        if (strcmp(names[l], "amx") == 0)
            cr_expect_gt(bf16, 2 * f32, "tiles do eight times as much in a cycle"); /* four times less than that for a noisy machine */
        qr_backend_close(be);
    }
}

Test(throughput, a_unit_is_what_activations_are_rounded_for)
{
    cr_expect_eq(qr_probe_unit_of(QR_F32), QR_PROBE_F32);
    cr_expect_eq(qr_probe_unit_of(QR_BF16), QR_PROBE_BF16);
    cr_expect_eq(qr_probe_unit_of(QR_Q8), QR_PROBE_INT8);
    cr_expect_eq(qr_probe_unit_of(QR_Q4), QR_PROBE_INT8);
    cr_expect_eq(qr_probe_unit_of(QR_C4_G32), QR_PROBE_BF16);
}

/* ---- the program ---- */

static double number(const struct qr_json *row, const char *key)
{
    const struct qr_json *v = qr_json_find(row, key);
    return v != NULL ? qr_json_f64(v) : NAN;
}

Test(throughput, every_case_that_fits_is_a_row_with_its_share)
{
    struct qr_buf text = {0};
    const char *data = getenv("QUIRE_DATA");
    char model[400], words[600];
    snprintf(model, sizeof model, "%s/models/stories260K", data != NULL && *data ? data : "../shared/data");
    if (access(model, R_OK) != 0)
        cr_skip_test("no conformance data at %s (set QUIRE_DATA)", model);
    /* 4 prompts, 6 decode cases, of which depth 100000 ends with the model's context, and 4096 sequences do not fit 2 MiB */
    snprintf(words, sizeof words, "throughput --json --model %s --prefill 3,40 --batch 1,2,4096 --depth 5,100000 --steps 3 --repeats 2 --chunk 16 --cache 2MiB",
             model);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    int32_t n_prefill = 0, n_decode = 0, n_probes = 0;
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        struct qr_json *row;
        struct qr_err err;
        cr_assert_eq(qr_json_parse(&row, line, strlen(line), &qr_json_limits_file, &err), 0, "%s: %s", line, err.msg);
        if (strstr(line, "\"probe\"") != NULL) {
            n_probes++;
            cr_expect_gt(number(row, "bytes_s"), 1e8);
        } else {
            n_prefill += strstr(line, "\"prefill\"") != NULL;
            n_decode += strstr(line, "\"decode\"") != NULL;
            double depth = number(row, "depth");
            cr_expect(depth == 5 || depth + number(row, "tokens") == 512, "%s", line);
            cr_expect_gt(number(row, "tok_s"), 0);
            cr_expect_geq(number(row, "best_tok_s"), number(row, "tok_s"));
            cr_expect_float_eq(number(row, "share"), number(row, "tok_s") / number(row, "limit_tok_s"), 0.01 * number(row, "share") + 1e-4, "%s", line);
        }
        qr_json_free(row);
    }
    cr_expect_eq(n_probes, 1);
    cr_expect_eq(n_prefill, 4);
    cr_expect_eq(n_decode, 4);
    qr_buf_release(&text);
    snprintf(words, sizeof words, "throughput --no-probe --model %s --prefill 8 --batch 1 --steps 2 --repeats 1", model);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    cr_expect(strstr(text.data, "probes:") == NULL && strstr(text.data, "limit") == NULL && strstr(text.data, "prefill ") != NULL, "%s", text.data);
    qr_buf_release(&text);
}

/* The largest share in the table's last column, in percent. */
static double largest_share(const char *text)
{
    double most = 0;
    for (const char *at = strchr(text, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        const size_t n = strcspn(at + 1, "\n");
        if ((strncmp(at + 1, "prefill", 7) == 0 || strncmp(at + 1, "decode", 6) == 0) && n > 8)
            most = fmax(most, atof(at + 1 + n - 7)); /* "  113 %" */
    }
    return most;
}

/* Weights that stay in a cache may be read faster than memory allows; how fast is the machine's affair. */
Test(throughput, a_share_above_100_percent_is_explained)
{
    struct qr_buf text = {0};
    cr_assert_eq(run_main(&qr_bench_throughput_command, "throughput --model models/quire-tiny --prefill 1 --batch 1 --repeats 3", &text), 0);
    const double share = largest_share(text.data);
    const bool explained = strstr(text.data, "\nnote: where the share is above 100 %, the limit does not apply: ") != NULL ||
                           strstr(text.data, "\nnote: a share above 100 % means that the machine was busier") != NULL;
    cr_expect_gt(share, 0, "%s", text.data);
    cr_expect((share < 101 || explained) && (share > 99 || !explained), "%s", text.data);
    qr_buf_release(&text);
}

Test(throughput, every_shape_that_help_names_is_known)
{
    char names[] = QR_SHAPE_NAMES;
    struct qr_model_config c;
    struct qr_err err;
    int n = 0;
    for (char *name = strtok(names, ", "); name != NULL; name = strtok(NULL, ", "))
        if (strcmp(name, "or") != 0)
            cr_expect(++n && qr_shape_config(&c, name, &err) == 0 && c.n_embd > 0, "%s", name);
    cr_expect_geq(n, 10);
    cr_expect_eq(qr_shape_config(&c, "qwen3-80b", &err), QR_E_USAGE);
    cr_expect(strstr(err.msg, "did you mean qwen3-8b") != NULL, "%s", err.msg);
}

Test(throughput, wrong_usage_is_refused)
{
    struct qr_buf text = {0};
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput", &text), 2);
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput --model x --batch 0", &text), 2);
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput --model /nonexistent --batch 1,x", &text), 2);
    cr_expect_neq(run_main(&qr_bench_throughput_command, "throughput --model /nonexistent", &text), 0);
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput --help", &text), 0);
    cr_expect(strstr(text.data, "--depth") != NULL);
    cr_expect_eq(run_main(&qr_bench_make_command, "make-model --like 135", &text), 2);
    cr_expect_eq(run_main(&qr_bench_make_command, "make-model --help", &text), 0);
    qr_buf_release(&text);
}
