/* cmd_generate.c - offline generation: one or many prompts through the very engine that serves, answers in the order of
 * the prompts. Prompts are submitted while there is room in the queue, so any number of them takes bounded memory.
 * Answers are the server's, bit for bit. Main thread; the engine has its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers/constraint.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "engine/adapters.h"
#include "loader/config/hf_config.h"

#define GRAMMAR_BYTES_MAX ((size_t)4 << 20)

struct generate_options {
    struct qr_cli_model m;
    struct qr_cli_engine e;
    const char *prompt, *prompt_ids, *prompts, *lora, *schema, *regex, *grammar;
    union qr_sampling_given given[QR_P_N];
    bool json, add_special, stats;
};

/* One prompt and what came of it. */
struct job {
    struct qr_ids prompt;
    struct qr_ids output;
    struct qr_buf text;
    enum qr_finish finish;
    struct qr_err err;
};

struct generator {
    const struct generate_options *o;
    struct qr_comm_team team;
    struct qr_tokenizer *tokenizer;
    struct qr_engine *engine;
    uint64_t adapter; /* 0: none */
    struct qr_sampling sampling; /* of all prompts, but for max_tokens, which the context may cut */
    struct qr_ids allowed, bad;  /* what sampling's point to */
    struct qr_vocab *vocab;      /* owned; NULL without a grammar */
    struct qr_grammar *grammar;  /* owned; of all answers, or NULL */
    struct job *job; /* owned [n_jobs] */
    int32_t n_jobs, n_submitted, n_done, n_printed;
    int64_t n_tokens; /* of all answers so far */
    int64_t n_accepted, n_rejected; /* guesses of tokens that were right, and wrong */
    struct qr_progress progress;
};

static struct job *add_job(struct generator *g)
{
    if ((g->n_jobs & (g->n_jobs - 1)) == 0)
        g->job = qr_realloc(g->job, (size_t)(g->n_jobs ? g->n_jobs * 2 : 1), sizeof *g->job);
    struct job *j = &g->job[g->n_jobs++];
    *j = (struct job){0};
    return j;
}

static int add_text(struct generator *g, const char *text, size_t len, struct qr_err *err)
{
    unsigned flags = QR_ENCODE_PARSE_SPECIAL | (g->o->add_special ? QR_ENCODE_ADD_SPECIAL : 0u);
    return qr_tokenizer_encode(g->tokenizer, &add_job(g)->prompt, text, len, flags, err);
}

/* "1,2,3" */
static int read_id_list(struct qr_ids *out, const char *flag, const char *list, struct qr_err *err)
{
    for (const char *at = list; *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return qr_err_set(err, QR_E_USAGE, "--%s wants numbers like 1,2,3, given '%s'", flag, list);
        qr_ids_push(out, (int32_t)id);
        at = *end ? end + 1 : end;
    }
    return 0;
}

/* A line of --prompts: a string, {"prompt": text}, {"prompt_ids": [...]} or {"ids": [...]}. */
static int add_line(void *user, const struct qr_json *v, struct qr_buf *out __attribute__((unused)), struct qr_err *err)
{
    struct generator *g = user;
    const struct qr_json *text = qr_json_type(v) == QR_JSON_T_STRING ? v : qr_json_find(v, "prompt");
    size_t len;
    if (text && qr_json_type(text) == QR_JSON_T_STRING) {
        const char *s = qr_json_str(text, &len);
        return add_text(g, s, len, err);
    }
    const struct qr_json *ids = qr_json_find(v, "prompt_ids");
    ids = ids ? ids : qr_json_find(v, "ids");
    if (!ids)
        return qr_err_set(err, QR_E_INVALID, "expected a string, {\"prompt\": text} or {\"prompt_ids\": [...]}");
    return qr_cli_ids(&add_job(g)->prompt, ids, "prompt_ids", err);
}

static int read_prompts(struct generator *g, struct qr_err *err)
{
    const struct generate_options *o = g->o;
    if (!!o->prompt + !!o->prompt_ids + !!o->prompts != 1)
        return qr_err_set(err, QR_E_USAGE, "expected one prompt: quire generate MODEL PROMPT, --prompt-ids 1,2,3 or --prompts FILE.jsonl");
    if (o->prompt && !qr_utf8_is_valid(o->prompt, strlen(o->prompt)))
        return qr_err_set(err, QR_E_USAGE, "--prompt is not valid UTF-8");
    if (o->prompt)
        return add_text(g, o->prompt, strlen(o->prompt), err);
    if (o->prompt_ids)
        return read_id_list(&add_job(g)->prompt, "prompt-ids", o->prompt_ids, err);
    FILE *f = strcmp(o->prompts, "-") == 0 ? stdin : fopen(o->prompts, "re");
    if (!f)
        return qr_err_set(err, QR_E_NOT_FOUND, "cannot open '%s': %s", o->prompts, strerror(errno));
    int rc = qr_cli_each_line(f, add_line, g, err);
    if (f != stdin)
        fclose(f);
    return rc;
}

static int read_texts(struct generator *g, struct qr_err *err)
{
    const struct qr_str_list *stop = &g->o->given[QR_P_stop].list, *bad = &g->o->given[QR_P_bad].list;
    struct qr_sampling *s = &g->sampling;
    if (stop->n > QR_STOPS_MAX)
        return qr_err_set(err, QR_E_USAGE, "--stop may be given %d times, not %d", QR_STOPS_MAX, stop->n);
    for (int32_t i = 0; i < stop->n; i++) {
        size_t len = strlen(stop->item[i]);
        if (len < 1 || len > QR_STOP_BYTES_MAX)
            return qr_err_set(err, QR_E_USAGE, "--stop wants 1 to %d bytes, given %zu", QR_STOP_BYTES_MAX, len);
        s->stop[s->n_stops++] = stop->item[i];
    }
    for (int32_t i = 0; i < bad->n; i++)
        if (qr_bad_words_encode(&g->bad, g->tokenizer, bad->item[i], strlen(bad->item[i]), err) != 0) {
            err->code = QR_E_USAGE;
            return qr_err_prefix(err, "--bad-words '%s': ", bad->item[i]);
        }
    s->bad = g->bad.id;
    s->n_bad = g->bad.n;
    return 0;
}

/* What flags say, once for all prompts. */
static int read_sampling(struct generator *g, struct qr_err *err)
{
    struct qr_sampling *s = &g->sampling;
    const char *allowed = g->o->given[QR_P_allowed].text;
    qr_sampling_init(s);
    qr_sampling_take(s, g->o->given);
    if (s->min_tokens > s->max_tokens)
        return qr_err_set(err, QR_E_USAGE, "--min-tokens %d is more than --max-tokens (-n) %d allows", s->min_tokens, s->max_tokens);
    if (allowed && !*allowed)
        return qr_err_set(err, QR_E_USAGE, "--allowed-token-ids wants numbers like 1,2,3, given ''");
    const int rc = allowed ? read_id_list(&g->allowed, "allowed-token-ids", allowed, err) : 0;
    s->allowed = g->allowed.id;
    s->n_allowed = g->allowed.n;
    return rc ? rc : read_texts(g, err);
}

/* The language that a flag's text is in. QR_CONSTRAINT_NONE: a grammar, whose text tells. */
static const struct form {
    const char *flag;
    size_t offset;
    enum qr_constraint_kind kind;
    bool is_file;
} forms[] = {{"schema", offsetof(struct generate_options, schema), QR_CONSTRAINT_SCHEMA, true},
             {"regex", offsetof(struct generate_options, regex), QR_CONSTRAINT_REGEX, false},
             {"grammar", offsetof(struct generate_options, grammar), QR_CONSTRAINT_NONE, true}};

static int compile_form(struct generator *g, const struct form *f, const char *given, const struct qr_model_config *mc, struct qr_err *err)
{
    struct qr_buf text = {0};
    int rc = f->is_file ? qr_file_read(&text, given, QR_FILE_ANY, GRAMMAR_BYTES_MAX, err) : 0;
    if (rc != 0)
        return rc;
    struct qr_constraint c = {.kind = f->kind, .plain_integers = true, .text = f->is_file ? text.data : given, .len = f->is_file ? text.len : strlen(given)};
    if (c.kind == QR_CONSTRAINT_NONE)
        c.kind = qr_constraint_guess(c.text, c.len);
    const int32_t eos = qr_tokenizer_eos(g->tokenizer);
    g->vocab = qr_vocab_new(g->tokenizer, mc->n_vocab, mc->n_eos > 0 ? mc->eos_ids : &eos, mc->n_eos > 0 ? mc->n_eos : eos >= 0);
    rc = qr_constraint_compile(&g->grammar, &c, g->vocab, err);
    if (rc != 0) {
        const bool has_path = strchr(err->param, '.') || strchr(err->param, '[');
        if (rc == QR_E_INVALID)
            err->code = f->is_file ? QR_E_DAMAGED : QR_E_USAGE;
        rc = qr_err_prefix(err, "--%s%s%s: %s%s", f->flag, f->is_file ? " " : "", f->is_file ? given : "", has_path ? err->param : "",
                           has_path ? ": " : "");
    }
    qr_buf_release(&text);
    return rc;
}

/* What --schema, --regex or --grammar demands of every answer. */
static int read_form(struct generator *g, const struct qr_source *model, struct qr_err *err)
{
    const struct form *found = NULL;
    const char *given = NULL;
    struct qr_model_config mc;
    for (int i = 0; i < QR_COUNT(forms); i++) {
        const char *value = *(const char *const *)((const char *)g->o + forms[i].offset);
        if (value && found)
            return qr_err_set(err, QR_E_USAGE, "--%s and --%s: an answer can be made to fit one of them", found->flag, forms[i].flag);
        found = value ? &forms[i] : found;
        given = value ? value : given;
    }
    if (!found)
        return 0;
    const int rc = qr_model_config_from(&mc, model, err);
    return rc ? rc : compile_form(g, found, given, &mc, err);
}

/* Of prompt `no`, the first being 1: as many new tokens as the context has room for. */
static int fill_sampling(struct qr_sampling *s, const struct generator *g, int32_t no, int32_t n_prompt, struct qr_err *err)
{
    const int32_t ctx_max = qr_engine_limits(g->engine)->ctx_max, room = ctx_max - n_prompt > 0 ? ctx_max - n_prompt : 0;
    *s = g->sampling;
    s->max_tokens = s->max_tokens < room ? s->max_tokens : room;
    if (s->min_tokens > s->max_tokens)
        return qr_err_set(err, QR_E_INVALID, "prompt %d: %d prompt tokens and --min-tokens %d make %lld, the context holds %d", no, n_prompt,
                          s->min_tokens, (long long)s->min_tokens + n_prompt, ctx_max);
    return 0;
}

/* Leaves the prompt's last tokens, as --truncate-prompt-tokens says. */
static int truncate_prompt(const struct generator *g, struct qr_ids *prompt, struct qr_err *err)
{
    const int32_t ctx_max = qr_engine_limits(g->engine)->ctx_max, kept = qr_sampling_kept(&g->sampling, prompt->n, ctx_max);
    if (g->sampling.truncate_prompt > ctx_max)
        return qr_err_set(err, QR_E_USAGE, "--truncate-prompt-tokens must be from -1 to %d, found %d", ctx_max, g->sampling.truncate_prompt);
    if (kept < prompt->n)
        memmove(prompt->id, prompt->id + prompt->n - kept, (size_t)kept * sizeof *prompt->id);
    prompt->n = kept;
    return 0;
}

/* At once, so that finished answers are there when the run is ended; an output that cannot be written ends the run. */
static int print_job(const struct generator *g, const struct job *j, struct qr_err *err)
{
    struct qr_buf out = {0};
    if (g->o->json) {
        qr_buf_put_str(&out, "{\"prompt_ids\":");
        qr_buf_put_ids(&out, j->prompt.id, j->prompt.n);
        qr_buf_put_str(&out, ",\"ids\":");
        qr_buf_put_ids(&out, j->output.id, j->output.n);
        qr_buf_put_str(&out, ",\"text\":");
        qr_json_put_str(&out, j->text.data, j->text.len);
        qr_buf_printf(&out, ",\"finish_reason\":\"%s\"}", qr_finish_name(j->finish));
    } else if (isatty(STDOUT_FILENO)) {
        qr_buf_put_visible(&out, j->text.data, j->text.len);
    } else {
        qr_buf_put(&out, j->text.data, j->text.len);
    }
    qr_buf_put_byte(&out, '\n');
    const bool written = fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    const int cause = errno;
    qr_buf_release(&out);
    return written ? 0 : qr_err_set(err, QR_E_IO, "cannot write to stdout: %s", strerror(cause));
}

static void take_event(struct generator *g, struct qr_event *ev)
{
    struct job *j = ev->req->user;
    for (int32_t i = 0; i < ev->n_tokens; i++)
        qr_ids_push(&j->output, ev->token[i].id);
    g->n_tokens += ev->n_tokens;
    qr_buf_put(&j->text, ev->text, (size_t)ev->text_len);
    if (ev->finish != QR_FINISH_NONE)
        j->finish = ev->finish;
    if (ev->finish == QR_FINISH_ERROR)
        j->err = ev->req->err;
    if (ev->last) {
        g->n_accepted += ev->req->n_accepted[0];
        g->n_rejected += ev->req->n_rejected[0];
        qr_request_free(ev->req);
        g->n_done++;
    }
    qr_engine_recycle(g->engine, ev);
}

/* Submits until the engine is full; a prompt that cannot run is an error of the whole call. */
static int submit_some(struct generator *g, struct qr_err *err)
{
    while (g->n_submitted < g->n_jobs) {
        struct job *j = &g->job[g->n_submitted];
        struct qr_sampling s;
        int rc = truncate_prompt(g, &j->prompt, err);
        rc = rc ? rc : fill_sampling(&s, g, g->n_submitted + 1, j->prompt.n, err);
        if (rc != 0)
            return rc;
        struct qr_request *r = qr_request_new(&s, j->prompt.id, j->prompt.n, 1);
        r->id = (uint64_t)g->n_submitted + 1;
        r->user = j;
        r->adapter = g->adapter;
        r->grammar = g->grammar ? qr_grammar_ref(g->grammar) : NULL;
        r->arrived_us = qr_clock_us();
        rc = qr_engine_submit(g->engine, r, err);
        if (rc != 0) {
            qr_request_free(r);
            return rc == QR_E_BUSY ? 0 : qr_err_prefix(err, "prompt %d: ", g->n_submitted + 1);
        }
        g->n_submitted++;
    }
    return 0;
}

static void show_progress(struct generator *g)
{
    struct qr_progress *p = &g->progress;
    char left[QR_DURATION_TEXT];
    if (!qr_progress_due(p))
        return;
    qr_duration_text(left, qr_progress_left_s(p, (uint64_t)g->n_done, (uint64_t)g->n_jobs));
    qr_progress_say(p, "generating: %d of %d prompts done, %lld tokens%s%s%s", g->n_done, g->n_jobs, (long long)g->n_tokens, g->n_done > 0 ? ", " : "",
                    g->n_done > 0 ? left : "", g->n_done > 0 ? " left" : "");
}

static int run_all(struct generator *g, struct qr_err *err)
{
    int rc = 0;
    qr_progress_open(&g->progress, "");
    while (g->n_done < g->n_jobs && (rc = submit_some(g, err)) == 0) {
        struct qr_node got, *node;
        qr_list_init(&got);
        qr_engine_wait(g->engine, &got, 100000);
        while ((node = qr_list_pop_front(&got)))
            take_event(g, QR_CONTAINER(node, struct qr_event, link));
        for (; g->n_printed < g->n_jobs && g->job[g->n_printed].finish != QR_FINISH_NONE; g->n_printed++) {
            const struct job *j = &g->job[g->n_printed];
            qr_progress_end(&g->progress);
            if (j->finish == QR_FINISH_ERROR) {
                *err = j->err;
                return qr_err_prefix(err, "prompt %d: ", g->n_printed + 1);
            }
            rc = print_job(g, j, err);
            if (rc != 0)
                return rc;
        }
        if (g->n_done < g->n_jobs)
            show_progress(g);
    }
    qr_progress_end(&g->progress);
    return rc;
}

static void release(struct generator *g)
{
    qr_engine_close(g->engine);
    qr_grammar_unref(g->grammar);
    qr_vocab_free(g->vocab);
    qr_tokenizer_close(g->tokenizer);
    for (int32_t i = 0; i < g->n_jobs; i++) {
        qr_ids_release(&g->job[i].prompt);
        qr_ids_release(&g->job[i].output);
        qr_buf_release(&g->job[i].text);
    }
    qr_free(g->job);
    qr_ids_release(&g->allowed);
    qr_ids_release(&g->bad);
}

static void print_stats(const struct generator *g, int64_t open_us, int64_t run_us)
{
    int64_t n_prompt = 0, n_output = 0;
    for (int32_t i = 0; i < g->n_jobs; i++) {
        n_prompt += g->job[i].prompt.n;
        n_output += g->job[i].output.n;
    }
    fprintf(stderr, "%d prompts, %lld prompt + %lld output tokens in %.3f s (%.1f output tok/s); %lld of %lld guesses right; model open in %.3f s\n",
            g->n_jobs, (long long)n_prompt, (long long)n_output, (double)run_us * 1e-6, (double)n_output / ((double)run_us * 1e-6),
            (long long)g->n_accepted, (long long)(g->n_accepted + g->n_rejected), (double)open_us * 1e-6);
}

/* Room for what is in --lora's directory. */
static int plan_adapter(const struct generator *g, const char **dir, struct qr_engine_config *ec, const struct qr_source *model, struct qr_err *err)
{
    *dir = NULL;
    if (!g->o->lora)
        return 0;
    const int32_t rank = qr_cli_lora_one(dir, g->o->lora, model, err);
    if (rank < 0)
        return rank;
    ec->lora_slots = 1;
    ec->lora_rank_max = rank;
    return 0;
}

static int load_adapter(struct generator *g, const char *dir, struct qr_err *err)
{
    const struct qr_adapter_source source = {.name = "adapter", .dir = dir};
    if (!dir)
        return 0;
    if (qr_engine_load_adapter(g->engine, &source, err) != 0)
        return qr_err_prefix(err, "--lora %s: ", g->o->lora);
    g->adapter = qr_engine_find_adapter(g->engine, source.name);
    return 0;
}

static int generate(struct generator *g, struct qr_err *err)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    struct qr_engine_config ec;
    qr_cli_model_options(&mo, &bo, &g->o->m);
    qr_cli_engine_config(&ec, &g->o->e);
    mo.comm = qr_comm_team_comm(&g->team);
    int64_t t0 = qr_clock_us();
    const char *adapter = NULL;
    int rc = qr_source_open(&mo.source, g->o->m.model, err);
    rc = rc ? rc : plan_adapter(g, &adapter, &ec, mo.source, err);
    if (rc == 0)
        rc = qr_tokenizer_open_from(&g->tokenizer, mo.source, err);
    rc = rc ? rc : read_sampling(g, err);
    rc = rc ? rc : read_form(g, mo.source, err);
    rc = rc ? rc : read_prompts(g, err);
    struct qr_progress progress;
    qr_cli_progress_begin(&progress, &mo);
    if (rc == 0)
        rc = qr_engine_open(&g->engine, g->o->m.model, &ec, &bo, &mo, g->tokenizer, NULL, NULL, err);
    qr_progress_end(&progress);
    qr_source_unref(mo.source);
    rc = rc ? rc : load_adapter(g, adapter, err);
    int64_t t1 = qr_clock_us();
    if (rc == 0)
        rc = run_all(g, err);
    if (rc == 0 && g->o->stats)
        print_stats(g, t1 - t0, qr_clock_us() - t1);
    return rc;
}

#define ROW(field, kind, text, ...) {.name = text, .type = kind, .offset = offsetof(struct generate_options, field), __VA_ARGS__}

#define TYPE_FLOAT QR_OPT_FLOAT
#define TYPE_INT QR_OPT_INT
#define TYPE_COUNT QR_OPT_INT
#define TYPE_LENGTH QR_OPT_INT
#define TYPE_SEED QR_OPT_INT
#define TYPE_FLAG QR_OPT_FLAG
#define TYPE_LIST QR_OPT_LIST
#define TYPE_IDS QR_OPT_STR
#define PARAM(field, kind, key, flag, usual, offline, low, high, chat, config, short_flag, arg_name, read, text)                   \
    {.name = flag, .type = TYPE_##kind, .offset = offsetof(struct generate_options, given[QR_P_##field]),              \
     .builtin = offline, .min = low, .max = high, .arg = arg_name, .group = "Sampling", .help = text ".",                         \
     .brief = (short_flag) != 0, .letter = (short_flag)},

static const struct qr_option table[] = {
    QR_CLI_MODEL_ROWS(struct generate_options, m), QR_CLI_MEETING_ROWS(struct generate_options, m), QR_CLI_ENGINE_ROWS(struct generate_options, e),
    ROW(lora, QR_OPT_STR, "lora", .arg = "PATH", .group = "Model",
        .help = "With the LoRA adapter in PATH (a directory of PEFT's or quire train's, or a GGUF file); NAME=PATH, as quire serve has it, is "
                "understood, too."),
    ROW(prompt, QR_OPT_STR, "prompt", .brief = true, .letter = 'p', .arg = "TEXT", .group = "Input", .help = "The prompt."),
    ROW(prompt_ids, QR_OPT_STR, "prompt-ids", .arg = "IDS", .group = "Input", .help = "The prompt as token ids: 1,2,3."),
    ROW(prompts, QR_OPT_STR, "prompts", .brief = true, .arg = "FILE", .group = "Input",
        .help = "JSON lines, each a string, {\"prompt\": text} or {\"prompt_ids\": [...]}; - is stdin."),
    ROW(add_special, QR_OPT_FLAG, "add-special", .builtin = "true", .group = "Input", .help = "Let the tokenizer add BOS to text."),
    QR_SAMPLING_ROWS(PARAM)
    ROW(schema, QR_OPT_STR, "schema", .brief = true, .arg = "FILE", .group = "Answers",
        .help = "Every answer is JSON that fits the JSON schema in FILE; what cannot be enforced is refused by its path."),
    ROW(regex, QR_OPT_STR, "regex", .arg = "PATTERN", .group = "Answers", .help = "Every answer matches the pattern as a whole."),
    ROW(grammar, QR_OPT_STR, "grammar", .arg = "FILE", .group = "Answers", .help = "Every answer is in the grammar in FILE, GBNF or Lark."),
    ROW(json, QR_OPT_FLAG, "json", .brief = true, .builtin = "false", .group = "Output", .help = "JSON lines {prompt_ids, ids, text, finish_reason}."),
    ROW(stats, QR_OPT_FLAG, "stats", .builtin = "false", .group = "Output", .help = "A line of timing on stderr.")};

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct generate_options *o = r->options;
    struct generator g = {.o = o};
    int rc = qr_cli_need_model(&o->m, err);
    rc = rc ? rc : qr_cli_team_begin(&g.team, &o->m, err);
    if (rc == 0 && g.team.comm.rank > 0) {
        r->status = qr_cli_follow(&g.team, &o->m, &o->e);
        return 0;
    }
    rc = rc ? rc : generate(&g, err);
    release(&g);
    return qr_comm_team_end(&g.team, rc, err);
}

const struct qr_command qr_cmd_generate = {
    .name = "generate", .purpose = "generate offline, one prompt or many",
    .usage = "quire generate MODEL PROMPT [flags]\nquire generate MODEL --prompts FILE [--json] [flags]",
    .examples = "quire generate models/quire-tiny 'Once upon a time'\n"
                "quire generate model.gguf 'The sky is' -n 32 --temperature 0.7\n"
                "quire generate models/quire-tiny --prompts prompts.jsonl --json",
    .text = "Generates without a server. Many prompts run together; the answers come in the order of the prompts.",
    .args = "model prompt", .settle = qr_hub_settle,
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct generate_options), .run = run,
};
