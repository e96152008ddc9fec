/* options.c - the flags of `quire bench load`, their numbers, and the names vLLM's benchmark gives the same things.
 * Ranges and lists are read here, and a misspelt name is refused before anything is sent. A flag of vLLM's is another
 * name of the same row. Main thread, at start. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bench/load/load.h"
#include "bench/load/parts.h"

#define AT(field) offsetof(struct qr_load_options, field)

static const struct qr_option table[] = {
    {.name = "url", .brief = true, .type = QR_OPT_STR, .offset = AT(url), .builtin = "http://127.0.0.1:8000", .arg = "URL", .group = "Server",
     .help = "Base URL of the server; /v1 is added when it has no path."},
    {.name = "model", .brief = true, .type = QR_OPT_STR, .offset = AT(model), .arg = "NAME", .group = "Server",
     .help = "Model to ask. Default: the first one that the server lists."},
    {.name = "api-key", .type = QR_OPT_STR, .offset = AT(api_key), .arg = "KEY", .group = "Server",
     .help = "Sent as bearer token. OPENAI_API_KEY is used when this is not given."},
    {.name = "endpoint", .type = QR_OPT_ENUM, .offset = AT(endpoint), .builtin = "completions",
     .choices = "completions|chat|/v1/completions|/v1/chat/completions", .group = "Server",
     .help = "completions sends prompts as token ids (exact lengths); chat sends words."},
    {.name = "timeout", .type = QR_OPT_TIME, .offset = AT(timeout_us), .builtin = "10m", .min = 1e5, .max = 86400e6, .arg = "TIME",
     .group = "Server", .help = "A request fails when the server sends nothing for so long."},
    {.name = "users", .brief = true, .letter = 'u', .type = QR_OPT_STR, .offset = AT(users_text), .arg = "N[,N...]",
     .group = "Load", .help = "Closed loop: this many users, each of whom asks again when its answer is complete; 8 when neither this nor "
                              "--rate nor --trace is given. With --rate or --trace: at most this many requests at once; 0: no limit. "
                              "With --sweep: the greatest number of users (256 when not given), or a list of numbers."},
    {.name = "rate", .brief = true, .letter = 'r', .type = QR_OPT_STR, .offset = AT(rate_text), .arg = "X[,X...]",
     .group = "Load", .help = "Open loop: requests per second, whether answers come or not. 0: closed loop; 1e6 or inf: all at once (with "
                              "--users: closed loop). With --sweep: a list of rates."},
    {.name = "burstiness", .type = QR_OPT_FLOAT, .offset = AT(burstiness), .builtin = "1", .min = 0.01, .max = 1e6, .arg = "X",
     .group = "Load", .help = "Shape of the gamma distribution of the gaps: 1 is a Poisson process, less is burstier, more is more even."},
    {.name = "trace", .type = QR_OPT_STR, .offset = AT(trace), .arg = "FILE", .group = "Load",
     .help = "Arrival times and lengths from an Azure CSV or a Mooncake JSONL file."},
    {.name = "trace-scale", .type = QR_OPT_FLOAT, .offset = AT(trace_scale), .builtin = "1", .min = 0, .max = 1e6, .arg = "X",
     .group = "Load", .help = "Multiplies the trace's times: 0.5 is twice as fast, 0 is all at once."},
    {.name = "num-requests", .brief = true, .letter = 'n', .type = QR_OPT_INT, .offset = AT(n_requests), .builtin = "0", .min = 0, .max = 1e9,
     .arg = "N", .group = "Load", .help = "Requests in all. 0: until --duration, or the whole trace, or 100."},
    {.name = "duration", .brief = true, .letter = 'd', .type = QR_OPT_TIME, .offset = AT(duration_us), .builtin = "0", .min = 0, .max = 7 * 86400e6,
     .arg = "TIME", .group = "Load", .help = "Send for so long, then wait for what is running. 0: no limit."},
    {.name = "warmups", .type = QR_OPT_INT, .offset = AT(n_warmups), .builtin = "0", .min = 0, .max = 1e6, .arg = "N", .group = "Load",
     .help = "Requests sent one after the other before the clock starts, not counted."},
    {.name = "abort-fraction", .type = QR_OPT_FLOAT, .offset = AT(abort_fraction), .builtin = "0", .min = 0, .max = 1, .arg = "X",
     .group = "Load", .help = "This part of the requests is abandoned by closing the connection after a random number of tokens."},
    {.name = "seed", .type = QR_OPT_INT, .offset = AT(seed), .builtin = "1", .min = 0, .max = 9e15, .arg = "N", .group = "Load",
     .help = "Same seed, same requests at the same times."},
    {.name = "sweep", .type = QR_OPT_FLAG, .offset = AT(sweep), .builtin = "false", .group = "Sweep",
     .help = "Find saturation: run at 1, 2, 4, ... users (or at the numbers of --users or --rate) until more load gives no more. Each step "
             "begins with uncounted requests, one for each user (at most 64) or as many as --warmups says, and ends after --num-requests or "
             "--duration; with neither after 4 requests for each user, and 16, and about 2s, but 30s at most. What "
             "still runs after three times the duration is cut off."},
    {.name = "sweep-gain", .type = QR_OPT_FLOAT, .offset = AT(sweep_gain), .builtin = "0.1", .min = 0, .max = 1, .arg = "X",
     .group = "Sweep", .help = "The sweep ends when the throughput grows by less than this part of the load's growth while the median of TTFT "
                               "or of E2E grows by more than a tenth."},
    {.name = "sweep-time", .type = QR_OPT_TIME, .offset = AT(sweep_time_us), .builtin = "15m", .min = 1e5, .max = 7 * 86400e6, .arg = "TIME",
     .group = "Sweep", .help = "No step begins after so long."},
    {.name = "input-len", .brief = true, .letter = 'i', .type = QR_OPT_STR, .offset = AT(input_len), .builtin = "128", .arg = "N|LOW:HIGH",
     .group = "Requests", .help = "Prompt tokens; a range is drawn from evenly."},
    {.name = "output-len", .brief = true, .letter = 'o', .type = QR_OPT_STR, .offset = AT(output_len), .builtin = "64", .arg = "N|LOW:HIGH",
     .group = "Requests", .help = "Output tokens of a request; a range is drawn from evenly."},
    {.name = "prefix-len", .type = QR_OPT_INT, .offset = AT(prefix_len), .builtin = "0", .min = 0, .max = 1 << 24, .arg = "N",
     .group = "Requests", .help = "The first N tokens of every prompt are the same (for prefix caches)."},
    {.name = "max-input-len", .type = QR_OPT_INT, .offset = AT(input_max), .builtin = "0", .min = 0, .max = 1 << 24, .arg = "N",
     .group = "Requests", .help = "Longer prompts are cut to this, and the report says how many; 0: never. For traces on small models."},
    {.name = "max-output-len", .type = QR_OPT_INT, .offset = AT(output_max), .builtin = "0", .min = 0, .max = 1 << 24, .arg = "N",
     .group = "Requests", .help = "The same for outputs."},
    {.name = "vocab", .type = QR_OPT_INT, .offset = AT(vocab), .builtin = "400", .min = 4, .max = 1 << 24, .arg = "N",
     .group = "Requests", .help = "Random prompt ids are drawn from 3 to N - 1."},
    {.name = "temperature", .type = QR_OPT_FLOAT, .offset = AT(temperature), .builtin = "0", .min = 0, .max = 2, .arg = "X",
     .group = "Requests", .help = "0 always takes the likeliest token."},
    {.name = "ignore-eos", .type = QR_OPT_FLAG, .offset = AT(ignore_eos), .builtin = "true", .group = "Requests",
     .help = "Ask the server to go on past end tokens, so that output lengths are as planned."},
    {.name = "slo", .type = QR_OPT_LIST, .offset = AT(slo), .arg = "NAME:TIME[,...]", .group = "Report",
     .help = "Limits as ttft:200ms,tpot:50ms,e2el:5s (a bare number is ms), counted from the intended send; requests that meet all of them "
             "are the goodput. Repeatable. vLLM's name for it, --goodput, works too."},
    {.name = "slo-share", .type = QR_OPT_FLOAT, .offset = AT(slo_share), .builtin = "0.99", .min = 0, .max = 1, .arg = "X", .group = "Sweep",
     .help = "The sweep ends when less than this part of a step's requests met the --slo."},
    {.name = "fail-if", .type = QR_OPT_LIST, .offset = AT(fail_if), .arg = "CONDITION", .group = "Report",
     .help = "Exit with 6 when it holds: a key of the JSON report, one of < > <= >=, and a number, as p99_ttft_ms>250. Repeatable."},
    {.name = "report", .brief = true, .type = QR_OPT_STR, .offset = AT(report), .arg = "FILE", .group = "Report",
     .help = "Also write a page with tables and charts; one HTML file that loads nothing else."},
    {.name = "json", .brief = true, .type = QR_OPT_STR, .offset = AT(json), .arg = "FILE", .group = "Report",
     .help = "Also write the figures as JSON; with vLLM's key names. '-' is stdout, and the table then goes to stderr."},
    {.name = "detailed", .type = QR_OPT_FLAG, .offset = AT(detailed), .builtin = "false", .group = "Report",
     .help = "The JSON also holds every request's lengths and times."},
    {.name = "progress", .type = QR_OPT_FLAG, .offset = AT(progress), .builtin = "true", .group = "Report",
     .help = "A live line on stderr when that is a terminal."},
};

/* vLLM's names. */
static const struct qr_renamed renamed[] = {
    {"--base-url", "--url"},
    {"--request-rate", "--rate"},
    {"--max-concurrency", "--users"},
    {"--concurrency", "--users"},
    {"--num-prompts", "--num-requests"},
    {"--requests", "--num-requests"},
    {"--random-input-len", "--input-len"},
    {"--random-output-len", "--output-len"},
    {"--random-prefix-len", "--prefix-len"},
    {"--num-warmups", "--warmups"},
    {"--goodput", "--slo"},
    {"--save-detailed", "--detailed"},
    {"--result-filename", "--json"},
};

const struct qr_command qr_bench_load_command = {
    .name = "bench load", .purpose = "drive a server over HTTP: latencies, throughput, errors",
    .usage = "quire bench load [flags]",
    .examples = "quire bench load --users 16 -n 200 --input-len 64:512 --output-len 128\n"
                "quire bench load --rate 20 --duration 60s --json result.json\n"
                "quire bench load --sweep --slo ttft:200ms,tpot:50ms --report sweep.html",
    .text = "Drives an OpenAI-compatible server and measures its answers. vLLM's flag names (--request-rate, --max-concurrency,\n"
            "--num-prompts, --random-input-len, --random-output-len, ...) are understood too.\n"
            "    quire bench load --trace azure_llm_2023_conv.csv --trace-scale 0.5 --duration 5m\n"
            "    quire bench load --users 8 --fail-if 'p99_ttft_ms>250' --fail-if 'failed>0'\n\n"
            "Exit status: 0 measured; 1 no request succeeded; 2 wrong usage; 3 no connection; 4 no such model or file; 6 a --fail-if\n"
            "condition holds; 130 stopped by Ctrl-C (what was measured until then is printed).",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct qr_load_options),
    .renamed = renamed, .n_renamed = QR_COUNT(renamed), .run = qr_load_run_command,
};

/* ---- --users and --rate ---- */

#define USERS_MAX 100000
#define SWEEP_USERS_DEFAULT 256

/* "8" or "1,2,4": growing numbers from 0 to `max`. */
static int parse_points(struct qr_load_points *p, const char *flag, const char *text, double max, bool whole, struct qr_err *err)
{
    const char *at = text;
    p->n = 0;
    for (;;) {
        char *end;
        double v = strtod(at, &end);
        v = isinf(v) && v > 0 && !whole ? max : v; /* vLLM's word for it */
        if (end == at || !(v >= 0 && v <= max) || (whole && v != floor(v)) || (*end != '\0' && *end != ','))
            return qr_err_set(err, QR_E_USAGE, "%s: expected a %s from 0 to %.16g, or several with commas between, found '%.60s'", flag,
                              whole ? "whole number" : "number", max, text);
        if (p->n > 0 && v <= p->v[p->n - 1])
            return qr_err_set(err, QR_E_USAGE, "%s: the numbers of '%.60s' must grow", flag, text);
        if (p->n == QR_LOAD_POINTS_MAX)
            return qr_err_set(err, QR_E_USAGE, "%s: at most %d numbers", flag, QR_LOAD_POINTS_MAX);
        p->v[p->n++] = v;
        if (*end == '\0')
            return 0;
        at = end + 1;
    }
}

static void double_up_to(struct qr_load_points *p, double max)
{
    p->n = 0;
    for (double v = 1; v < max && p->n < QR_LOAD_POINTS_MAX - 1; v *= 2)
        p->v[p->n++] = v;
    p->v[p->n++] = max;
}

static int sweep_points(struct qr_load_points *p, const struct qr_load_points *users, const struct qr_load_points *rates,
                        const struct qr_load_options *opt, struct qr_err *err)
{
    p->rates = rates->n > 1;
    if (opt->trace != NULL)
        return qr_err_set(err, QR_E_USAGE, "--sweep: a trace has a load of its own; use --trace-scale for others");
    if (rates->n == 1)
        return qr_err_set(err, QR_E_USAGE, "--sweep: --rate needs a list of rates, as --rate 1,2,4,8");
    if (rates->n > 1 && users->n > 1)
        return qr_err_set(err, QR_E_USAGE, "--sweep: either --users or --rate may be a list, not both");
    if (rates->n > 1)
        memcpy(p->v, rates->v, sizeof p->v);
    else if (users->n > 1)
        memcpy(p->v, users->v, sizeof p->v);
    p->n = rates->n > 1 ? rates->n : users->n;
    if (p->n <= 1 && !p->rates)
        double_up_to(p, users->n == 1 && users->v[0] >= 1 ? users->v[0] : SWEEP_USERS_DEFAULT);
    return p->v[0] > 0 ? 0 : qr_err_set(err, QR_E_USAGE, "--sweep: the first step has no load: leave the 0 away");
}

int qr_load_points_read(struct qr_load_points *p, struct qr_load_options *opt, struct qr_err *err)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(opt != NULL);
    struct qr_load_points users = {0}, rates = {0};
    int rc = 0;
    *p = (struct qr_load_points){0};
    if (opt->users_text != NULL)
        rc = parse_points(&users, "--users", opt->users_text, USERS_MAX, true, err);
    if (rc == 0 && opt->rate_text != NULL)
        rc = parse_points(&rates, "--rate", opt->rate_text, QR_LOAD_RATE_INF, false, err);
    if (rc != 0)
        return rc;
    if (opt->sweep && (rc = sweep_points(p, &users, &rates, opt, err)) != 0)
        return rc;
    if (!opt->sweep && (users.n > 1 || rates.n > 1))
        return qr_err_set(err, QR_E_USAGE, "%s: several numbers are for --sweep only", users.n > 1 ? "--users" : "--rate");
    opt->users = users.n == 1 ? (int64_t)users.v[0] : 0;
    opt->rate = rates.n == 1 ? rates.v[0] : 0;
    return 0;
}
