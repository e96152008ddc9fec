/* load_options.c - the flags of `quire bench load`, and the names vLLM's benchmark gives the same things. */
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "bench/load_parts.h"

#define AT(field) offsetof(struct qr_load_options, field)

const struct qr_option qr_load_option_table[] = {
    {.name = "url", .type = QR_OPT_STR, .offset = AT(url), .builtin = "http://127.0.0.1:8000", .arg = "URL", .group = "Server",
     .help = "Base URL of an OpenAI-compatible server; /v1 is added when it has no path."},
    {.name = "model", .type = QR_OPT_STR, .offset = AT(model), .arg = "NAME", .group = "Server",
     .help = "Model to ask. Default: the first one that the server lists."},
    {.name = "api-key", .type = QR_OPT_STR, .offset = AT(api_key), .arg = "KEY", .group = "Server",
     .help = "Sent as bearer token. OPENAI_API_KEY is used when this is not given."},
    {.name = "endpoint", .type = QR_OPT_ENUM, .offset = AT(endpoint), .builtin = "completions",
     .choices = "completions|chat|/v1/completions|/v1/chat/completions", .group = "Server",
     .help = "completions sends prompts as token ids (exact lengths); chat sends words."},
    {.name = "timeout", .type = QR_OPT_TIME, .offset = AT(timeout_us), .builtin = "10m", .min = 1e5, .max = 86400e6, .arg = "TIME",
     .group = "Server", .help = "A request fails when the server sends nothing for so long."},
    {.name = "users", .letter = 'u', .type = QR_OPT_INT, .offset = AT(users), .builtin = "0", .min = 0, .max = 100000, .arg = "N",
     .group = "Load", .help = "Closed loop: this many users, each of whom asks again when its answer is complete (8 when neither this nor "
                              "--rate nor --trace is given). With --rate or --trace: at most this many requests at once; 0: no limit."},
    {.name = "rate", .letter = 'r', .type = QR_OPT_FLOAT, .offset = AT(rate), .builtin = "0", .min = 0, .max = 1e6, .arg = "X",
     .group = "Load", .help = "Open loop: requests per second, whether answers come or not. 0: closed loop; 1e6: all at once (with --users: closed loop)."},
    {.name = "burstiness", .type = QR_OPT_FLOAT, .offset = AT(burstiness), .builtin = "1", .min = 0.01, .max = 1e6, .arg = "X",
     .group = "Load", .help = "Shape of the gamma distribution of the gaps: 1 is a Poisson process, less is burstier, more is more even."},
    {.name = "trace", .type = QR_OPT_STR, .offset = AT(trace), .arg = "FILE", .group = "Load",
     .help = "Arrival times and lengths from an Azure CSV or a Mooncake JSONL file."},
    {.name = "trace-scale", .type = QR_OPT_FLOAT, .offset = AT(trace_scale), .builtin = "1", .min = 0, .max = 1e6, .arg = "X",
     .group = "Load", .help = "Multiplies the trace's times: 0.5 is twice as fast, 0 is all at once."},
    {.name = "num-requests", .letter = 'n', .type = QR_OPT_INT, .offset = AT(n_requests), .builtin = "0", .min = 0, .max = 1e9,
     .arg = "N", .group = "Load", .help = "Requests in all. 0: until --duration, or the whole trace, or 100."},
    {.name = "duration", .letter = 'd', .type = QR_OPT_TIME, .offset = AT(duration_us), .builtin = "0", .min = 0, .max = 7 * 86400e6,
     .arg = "TIME", .group = "Load", .help = "Send for so long, then wait for what is running. 0: no limit."},
    {.name = "warmups", .type = QR_OPT_INT, .offset = AT(n_warmups), .builtin = "0", .min = 0, .max = 1e6, .arg = "N", .group = "Load",
     .help = "Requests sent one after the other before the clock starts, not counted."},
    {.name = "abort-fraction", .type = QR_OPT_FLOAT, .offset = AT(abort_fraction), .builtin = "0", .min = 0, .max = 1, .arg = "X",
     .group = "Load", .help = "This part of the requests is abandoned by closing the connection after a random number of tokens."},
    {.name = "seed", .type = QR_OPT_INT, .offset = AT(seed), .builtin = "1", .min = 0, .max = 9e15, .arg = "N", .group = "Load",
     .help = "Same seed, same requests at the same times."},
    {.name = "input-len", .letter = 'i', .type = QR_OPT_STR, .offset = AT(input_len), .builtin = "128", .arg = "N|LOW:HIGH",
     .group = "Requests", .help = "Prompt tokens; a range is drawn from evenly."},
    {.name = "output-len", .letter = 'o', .type = QR_OPT_STR, .offset = AT(output_len), .builtin = "64", .arg = "N|LOW:HIGH",
     .group = "Requests", .help = "Output tokens asked for; a range is drawn from evenly."},
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
    {.name = "goodput", .type = QR_OPT_LIST, .offset = AT(goodput), .arg = "NAME:MS", .group = "Report",
     .help = "A limit (ttft:200, tpot:50, e2el:5000) in ms from the intended send; requests that meet all of them are counted. Repeatable."},
    {.name = "json", .type = QR_OPT_STR, .offset = AT(json), .arg = "FILE", .group = "Report",
     .help = "Also write the figures as JSON with vLLM's key names; '-' is stdout, and the table then goes to stderr."},
    {.name = "detailed", .type = QR_OPT_FLAG, .offset = AT(detailed), .builtin = "false", .group = "Report",
     .help = "The JSON also holds every request's lengths and times."},
    {.name = "progress", .type = QR_OPT_FLAG, .offset = AT(progress), .builtin = "true", .group = "Report",
     .help = "A live line on stderr when that is a terminal."},
};

const int32_t qr_load_n_options = QR_COUNT(qr_load_option_table);

static const char *const renamed[][2] = {
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
    {"--save-detailed", "--detailed"},
    {"--result-filename", "--json"},
};

static const char *renamed_value(const char *flag, const char *value)
{
    return strcmp(flag, "--request-rate") == 0 && strcmp(value, "inf") == 0 ? "1e6" : value;
}

int qr_load_rename_flags(char **out, int argc, char **argv, struct qr_buf *text)
{
    QR_ASSERT(out != NULL && argv != NULL);
    QR_ASSERT(text != NULL);
    int n = 0;
    size_t room = 1;
    for (int i = 0; i < argc; i++)
        room += strlen(argv[i]) + 16;
    qr_buf_reserve(text, room); /* the pointers into it must not move */
    for (int i = 0; i < argc; i++) {
        size_t len = strcspn(argv[i], "=");
        int k = 0;
        while (k < QR_COUNT(renamed) && (strlen(renamed[k][0]) != len || memcmp(argv[i], renamed[k][0], len) != 0))
            k++;
        out[n++] = argv[i];
        if (k == QR_COUNT(renamed) || i == 0)
            continue;
        size_t at = text->len;
        qr_buf_put_str(text, renamed[k][1]);
        if (argv[i][len] == '=')
            qr_buf_printf(text, "=%s", renamed_value(renamed[k][0], argv[i] + len + 1));
        qr_buf_put_byte(text, '\0');
        out[n - 1] = text->data + at;
        if (argv[i][len] == '\0' && i + 1 < argc && strcmp(renamed_value(renamed[k][0], argv[i + 1]), argv[i + 1]) != 0) {
            at = text->len;
            qr_buf_put_str(text, renamed_value(renamed[k][0], argv[i + 1]));
            qr_buf_put_byte(text, '\0');
            out[n++] = text->data + at;
            i++;
        }
    }
    return n;
}
