/* Benches on devices that the host cannot look into: every JSON key is there, numbers fit together, and what a device does not do is refused. How fast an
 * emulated device is says nothing. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "bench/bench.h"
#include "bench/kern/rows.h"
#include "bench/sequences.h"
#include "kernels/backend.h"
#include "loader/write/make_model.h"
#include "tests/device/device.h"
#include "tests/run_main.h"
#include "tests/temp.h"

TestSuite(device, .timeout = 240);

/* The line of output that is a JSON object. */
static struct qr_json *parse(const char *line)
{
    struct qr_json *row = NULL;
    struct qr_err err;
    cr_assert_eq(qr_json_parse(&row, line, strlen(line), &qr_json_limits_file, &err), 0, "%s: %s", line, err.msg);
    return row;
}

static double number(const struct qr_json *row, const char *key)
{
    const struct qr_json *v = qr_json_find(row, key);
    return v != NULL && qr_json_type(v) == QR_JSON_T_NUMBER ? qr_json_f64(v) : NAN;
}

static bool says(const struct qr_json *row, const char *key, const char *part)
{
    size_t n;
    const struct qr_json *v = qr_json_find(row, key);
    return v != NULL && qr_json_type(v) == QR_JSON_T_STRING && strstr(qr_json_str(v, &n), part) != NULL;
}

/* ---- train ---- */

#define TINY "train --dim 128 --heads 2 --kv-heads 1 --layers 1 --ffn 64 --vocab 100 --batch 2 --tokens 8 --steps 1 "

static void trains(const char *device, const char *title)
{
    static const char *const keys[] = {"threads", "parameters", "batch", "sequence", "tokens", "steps", "tokens_per_s", "step_ms", "forward_ms", "backward_ms",
                                       "optimizer_ms", "tape_bytes", "memory_planned_bytes", "memory_peak_bytes", "loss"};
    char words[300];
    struct qr_buf text = {0};
    snprintf(words, sizeof words, TINY "--json --device %s", device);
    cr_assert_eq(run_main(&qr_bench_train_command, words, &text), 0, "%s", text.data);
    struct qr_json *row = parse(text.data);
    for (int i = 0; i < QR_COUNT(keys); i++)
        cr_expect_gt(number(row, keys[i]), 0, "%s: %s", keys[i], text.data);
    cr_expect(says(row, "device", title) && says(row, "dtype", "bf16") && says(row, "like", "124m") && says(row, "optimizer", "adamw"), "%s", text.data);
    cr_expect_float_eq(number(row, "tokens_per_s") * number(row, "step_ms") * 1e-3, 16, 0.5, "%s", text.data); /* of rounded figures */
    cr_expect_geq(number(row, "step_ms") + 0.01, number(row, "forward_ms") + number(row, "backward_ms") + number(row, "optimizer_ms"), "%s", text.data);
    cr_expect_float_eq(number(row, "loss"), log(100), 0.5, "%s", text.data); /* nothing is known yet: every token is as likely */
    if (strcmp(device, "cpu") != 0) /* a device's memory is that of this program alone; sizes are rounded to pages */
        cr_expect_float_eq(number(row, "memory_peak_bytes") / number(row, "memory_planned_bytes"), 1, 0.05, "%s", text.data);
    qr_json_free(row);
    qr_buf_release(&text);
}

Test(device, a_training_step_is_timed_on_the_processor_and_on_a_device)
{
    use_discrete("ref", NULL);
    trains("cpu", "cpu: ");
    trains("cuda", "cuda: discrete");
    struct qr_buf text = {0};
    cr_expect_eq(run_main(&qr_bench_train_command, TINY "--device cuda", &text), 0);
    cr_expect(strncmp(text.data, "cuda: discrete", 14) == 0 && strstr(text.data, " tokens/s   step ") && strstr(text.data, "MiB planned"), "%s", text.data);
    qr_buf_release(&text);
}

Test(device, a_training_step_is_timed_on_the_emulated_device)
{
    use_emulated();
    trains("cuda", "emulated device");
}

Test(device, a_shape_that_is_not_known_or_not_trained_is_refused)
{
    cr_expect_eq(run_main(&qr_bench_train_command, "train --like qwen2.5-0.5", NULL), 2);
    cr_expect_neq(run_main(&qr_bench_train_command, "train --like mixtral-8x7b --device cpu", NULL), 0);
    use_discrete("ref", NULL);
    cr_expect_eq(run_main(&qr_bench_train_command, "train --like qwen2.5-1.5b --device cuda", NULL), 5, "it has 2 GiB");
}

/* ---- throughput ---- */

/* Of a row that came from a device. */
static void shares_are_right(const struct qr_json *row, const char *text)
{
    cr_expect(number(row, "steps") >= 1 && number(row, "step_us") > 0, "%s", text);
    /* A mean, into which every stop of the machine goes, and a median. */
    cr_expect(number(row, "host_us_per_step") > 0 && number(row, "host_us_per_step") < 100 * number(row, "step_us"), "%s", text);
    cr_expect(number(row, "device_idle_share") >= 0 && number(row, "device_idle_share") <= 1, "%s", text);
}

Test(device, rows_of_a_device_say_what_the_host_took_and_how_long_the_device_had_nothing_to_do)
{
    const char *common = "throughput -m models/quire-tiny --no-probe --prefill 20 --batch 1,3 --steps 4 --repeats 2 --chunk 8 --cache 4MiB --json --device";
    struct qr_buf text = {0};
    char words[400];
    use_discrete("avx2", NULL);
    snprintf(words, sizeof words, "%s cuda", common);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    int32_t n = 0;
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n"), n++) {
        if (strstr(line, "\"case\":\"ways\"")) { /* the last one: who multiplied */
            cr_expect_null(strtok(NULL, "\n"));
            break;
        }
        struct qr_json *row = parse(line);
        shares_are_right(row, line);
        cr_expect_eq(number(row, "steps"), n == 0 ? 3 : 4, "%s", line);
        cr_expect_gt(number(row, "device_idle_share"), 0, "this device computes while it is launched on: it is always done. %s", line);
        qr_json_free(row);
    }
    cr_expect_eq(n, 3);
    qr_buf_release(&text);
    snprintf(words, sizeof words, "%s cpu", common);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    cr_expect(strstr(text.data, "host_us") == NULL && strstr(text.data, "device_idle") == NULL, "there is nobody else: %s", text.data);
    qr_buf_release(&text);
}

#define SEQUENCES "throughput -m models/quire-tiny --sequences 5 --running 2 --prompt 12 --generate 6 --chunk 16 --json --device "

static void sequences(const char *device)
{
    struct qr_buf text = {0};
    char words[300];
    snprintf(words, sizeof words, SEQUENCES "%s", device);
    cr_assert_eq(run_main(&qr_bench_throughput_command, words, &text), 0);
    struct qr_json *row = parse(text.data);
    const double s = number(row, "seconds");
    cr_expect(s > 0 && number(row, "open_s") > 0 && number(row, "first_tokens_s") > 0 && number(row, "first_tokens_s") <= s, "%s", text.data);
    cr_expect_float_eq(number(row, "tok_s") * s, 30, 0.3 + 0.001 * number(row, "tok_s"), "five of six tokens: %s", text.data); /* seconds have three digits */
    cr_expect_float_eq(number(row, "all_tok_s") / number(row, "tok_s"), 3, 0.01, "12 and 6 tokens: %s", text.data);
    cr_expect_geq(number(row, "steps"), 3 * 6, "two of five at once: %s", text.data);
    cr_expect(number(row, "sequences") == 5 && number(row, "running") == 2 && number(row, "prompt") == 12 && number(row, "generate") == 6, "%s", text.data);
    const struct qr_json *parts = qr_json_find(row, "parts_us");
    cr_assert_not_null(parts);
    for (int i = 0; i < QR_PARTS; i++)
        cr_expect_geq(number(parts, qr_step_part_name((enum qr_step_part)i)), 0, "%s", text.data);
    if (strcmp(device, "cpu") != 0)
        shares_are_right(row, text.data);
    else
        cr_expect(strstr(text.data, "host_us") == NULL && strstr(text.data, "device_idle") == NULL, "%s", text.data);
    qr_json_free(row);
    qr_buf_release(&text);
}

Test(device, sequences_run_through_the_engine_until_the_last_has_ended)
{
    use_discrete("avx2", NULL);
    sequences("cpu");
    sequences("cuda");
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput -m models/quire-tiny --sequences 2 --generate 4000 --device cpu", NULL), 2);
    cr_expect_eq(run_main(&qr_bench_throughput_command, "throughput -m models/quire-tiny --sequences 2 --tensor-parallel 2 --device cpu", NULL), 2);
    cr_expect_neq(run_main(&qr_bench_throughput_command, "throughput -m /nonexistent --sequences 2 --device cpu", NULL), 0);
}

/* One layer with heads that CUDA's attention has, and the tokenizer of another model, which nobody asks. */
static void make_model(const char *dir)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct qr_buf tokenizer = {0};
    struct qr_err err;
    char path[QR_PATH_MAX];
    c.n_embd = c.n_ffn = 128;
    c.n_layers = 1;
    c.n_heads = 2;
    c.n_kv_heads = 1;
    c.head_dim = 64;
    c.n_vocab = 1536;
    cr_assert_eq(qr_model_make(dir, &c, &(struct qr_make_options){.store = QR_BF16, .seed = 1}, &err), 0, "%s", err.msg);
    slurp(open("models/quire-tiny/tokenizer.json", O_RDONLY | O_CLOEXEC), &tokenizer);
    cr_assert(qr_path_join(path, dir, "tokenizer.json", &err) == 0 && qr_file_write(path, tokenizer.data, tokenizer.len, false, &err) == 0, "%s", err.msg);
    qr_buf_release(&tokenizer);
}

Test(device, the_emulated_device_has_work_whenever_it_ends_a_step)
{
    char dir[64];
    struct qr_sequences_figures f;
    struct qr_err err = {0};
    use_emulated();
    temp_dir_make(dir, "bench-device");
    make_model(dir);
    const struct qr_sequences_case c = {.model = dir, .backend = {.device = "cuda", .n_threads = 1}, .n = 2, .n_prompt = 6, .n_generate = 4, .chunk = 16};
    cr_assert_eq(qr_bench_sequences(&f, &c, &err), 0, "%s", err.msg);
    cr_expect(f.device && f.running == 2 && f.n_output == 8 && f.n_steps >= 4);
    cr_expect_eq(f.idle_share, 0, "it computes when it is waited for");
    cr_expect(f.part_us[QR_PART_WAIT] > 0 && f.host_us > 0 && f.host_us < f.step_us, "host %g of %g us", f.host_us, f.step_us);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* ---- kern ---- */

static bool has_row(const struct qr_kern_rows *rows, const char *what)
{
    for (int32_t i = 0; i < rows->n; i++)
        if (strncmp(rows->row[i].what, what, strlen(what)) == 0)
            return true;
    return false;
}

static void times_all(void)
{
    static const char *const wanted[] = {"linear 1 x 64 -> 48, bf16", "linear 1 x 64 -> 48, fp8", "linear 1 x 64 -> 48, c8-g32 (w8a16)",
                                         "linear 16 x 64 -> 48, c4-g32 (w4a16)",
                                         "linear 1 x 64 -> 48, c4-g32-so (Q4_K)", "linear 16 x 64 -> 48, c6-g16-s (Q6_K)", "attention 2 seqs", "attention back",
                                         "rope 16", "rope back 16", "head_norm back", "rms_norm back", "glu back", "embed back",
                                         "scatter_rows", "linear_dx", "linear_dw", "linear_dw and bias", "cross_entropy", "adamw", "sum_squares"};
    char path[] = "/tmp/quire-kern-XXXXXX", words[200];
    struct qr_kern_rows rows;
    struct qr_err err;
    close(mkstemp(path));
    snprintf(words, sizeof words, "kern --device cuda --small --time 1ms --json %s", path);
    cr_assert_eq(run_main(&qr_bench_kern_command, words, NULL), 0);
    cr_assert_eq(qr_kern_rows_read(&rows, path, &err), 0, "%s", err.msg);
    for (int i = 0; i < QR_COUNT(wanted); i++)
        cr_expect(has_row(&rows, wanted[i]), "no row %s", wanted[i]);
    for (int32_t i = 0; i < rows.n; i++) {
        cr_expect(rows.row[i].probe == (rows.row[i].share == 0), "%s has share %g", rows.row[i].what, rows.row[i].share);
        for (int32_t k = 0; k < i; k++)
            cr_expect(strcmp(rows.row[i].what, rows.row[k].what) != 0, "two rows are named '%s'", rows.row[i].what);
    }
    qr_kern_rows_release(&rows);
    unlink(path);
}

Test(device, every_kind_of_weight_and_every_gradient_of_rows_is_timed_on_a_device)
{
    use_discrete("ref", NULL);
    times_all();
}

Test(device, every_kind_of_weight_and_every_gradient_of_rows_is_timed_on_the_emulated_device)
{
    use_emulated();
    times_all();
}
