/* cli.c - what subcommands share: option rows for a model and an engine, their conversion to the engine's
 * configuration, ranks, a line of progress, ids and files as JSON. A new option of every command that opens a model is
 * a row here. Errors become exit statuses in one place (base/command.h). Main thread. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/files/gguf_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/follow.h"
#include "loader/config/hf_config.h"
#include "model/lora.h"

#define LINE_BYTES_MAX ((size_t)64 << 20)

int qr_cli_group(const struct qr_command *group, int argc, char **argv)
{
    QR_ASSERT(group != NULL && argc >= 1);
    QR_ASSERT(group->n_sub > 0 && group->n_sub <= 32);
    const struct qr_command *c = argc > 1 ? qr_command_find(group->sub, group->n_sub, argv[1]) : NULL;
    if (c) {
        qr_cli_warn_variables(c);
        return qr_command_main(c, argc - 1, argv + 1);
    }
    const bool brief = argc > 1 && strcmp(argv[1], "-h") == 0, help = brief || (argc > 1 && strcmp(argv[1], "--help") == 0);
    if (argc > 1 && !help) {
        const char *names[32];
        for (int32_t i = 0; i < group->n_sub; i++)
            names[i] = strrchr(group->sub[i]->name, ' ') + 1;
        const char *near = qr_nearest(argv[1], names, group->n_sub);
        fprintf(stderr, "quire %s: unknown command '%s'%s%s%s\n", group->name, argv[1], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    struct qr_buf text = {0};
    qr_command_help(&text, group, brief, qr_options_columns());
    fwrite(text.data, 1, text.len, help ? stdout : stderr);
    qr_buf_release(&text);
    return help ? 0 : 2;
}

int qr_cli_need_model(const struct qr_cli_model *m, struct qr_err *err)
{
    struct stat st;
    if (!m->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (a directory with config.json, *.safetensors and tokenizer.json; a GGUF "
                                            "file; or ORG/NAME of the hub)");
    char gguf[QR_GGUF_PATH_MAX];
    int rc = qr_source_find(m->model, err);
    rc = rc ? rc : qr_source_explain(m->model, err);
    if (rc)
        return rc;
    if (stat(m->model, &st) == 0 && !S_ISDIR(st.st_mode) && !qr_gguf_find_file(gguf, m->model))
        return qr_err_set(err, QR_E_NOT_FOUND, "'%s' is a file, but not a GGUF; --model takes the directory that holds config.json, or a GGUF file", m->model);
    return 0;
}

int qr_cli_team_begin(struct qr_comm_team *t, const struct qr_cli_model *m, struct qr_err *err)
{
    QR_ASSERT(t != NULL && m != NULL);
    QR_ASSERT(m->tensor_parallel >= 1 && err != NULL);
    const int32_t n = (int32_t)m->tensor_parallel;
    const struct qr_comm_launch_options o = {.n_ranks = n, .share_cpus = true, .meeting = &m->meeting};
    *t = (struct qr_comm_team){0};
    if (n > 1 && m->tune == QR_TUNE_NOW)
        return qr_err_set(err, QR_E_USAGE, "--tune now and --tensor-parallel %d: shapes are measured on one process only; leave it at cached", n);
    int rc = n > 1 && m->cpus ? qr_cpus_keep_to(m->cpus, err) : 0; /* of which each process gets its part */
    rc = rc ? rc : qr_comm_team_begin(t, &o, err);
    if (rc == 0 && t->comm.rank > 0)
        qr_log_set_level(QR_LOG_ERROR); /* rank 0 says it */
    return rc;
}

int qr_cli_follow(struct qr_comm_team *t, const struct qr_cli_model *m, const struct qr_cli_engine *e)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    struct qr_engine_config ec;
    struct qr_err err;
    QR_ASSERT(t != NULL && t->comm.rank > 0);
    QR_ASSERT(m != NULL && e != NULL);
    qr_cli_model_options(&mo, &bo, m);
    qr_cli_engine_config(&ec, e);
    mo.comm = qr_comm_team_comm(t);
    mo.embeds = true; /* rank 0 knows whether a request wants them */
    int rc = qr_engine_follow(m->model, &ec, &bo, &mo, &err);
    rc = qr_comm_team_end(t, rc, &err);
    return rc == 0 ? 0 : qr_err_exit_status(err.code);
}

void qr_cli_progress_begin(struct qr_progress *p, struct qr_model_options *mo)
{
    QR_ASSERT(p != NULL && mo != NULL);
    qr_progress_open(p, "loading");
    mo->progress = p->terminal ? qr_progress_show_bytes : NULL;
    mo->progress_user = p;
}

void qr_cli_model_options(struct qr_model_options *mo, struct qr_backend_options *bo, const struct qr_cli_model *m)
{
    *mo = (struct qr_model_options){.compute = (enum qr_compute)m->dtype, .cache_packed = m->cache_packed, .quantize = (enum qr_quantize)m->quantize,
                                    .kv_cache = (enum qr_kv_cache)m->kv_cache};
    *bo = (struct qr_backend_options){.device = m->device, .isa = m->isa, .n_threads = (int32_t)m->threads,
                                        .cpus = m->tensor_parallel > 1 ? NULL : m->cpus, .pin = m->pin,
                                        .tune = (enum qr_tune_mode)m->tune, .deterministic = m->deterministic};
}

void qr_cli_engine_config(struct qr_engine_config *c, const struct qr_cli_engine *e)
{
    qr_engine_config_init(c);
    c->ctx_max = (int32_t)e->max_len;
    c->running_max = (int32_t)e->max_running;
    c->waiting_max = (int32_t)e->max_waiting;
    c->step_tokens_max = (int32_t)e->max_step_tokens;
    c->chunk_tokens_max = (int32_t)e->max_chunk_tokens;
    c->block_tokens = (int32_t)e->block_tokens;
    c->kv_bytes = e->kv_bytes;
    c->kv_tokens = e->kv_tokens;
    c->kv_host_bytes = (int64_t)(e->kv_host_gib * 0x1p30);
    c->prefix_cache = e->prefix_cache;
    c->pinned_share = e->kv_pinned_share;
    c->sharing = e->sharing > 0 ? e->sharing : 1;
    c->policy = (enum qr_sched_policy)e->policy;
    c->itl_goal_us = e->itl_goal_us;
    c->ttft_goal_us = e->ttft_goal_us;
    c->draft_tokens = e->speculate == 0 ? (int32_t)e->draft_tokens : 0;
    c->draft_model = e->speculate == 0 ? e->draft_model : NULL;
}

void qr_cli_outside_config(struct qr_engine_config *c, const struct qr_cli_outside *o)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(o != NULL);
    c->outside = (struct qr_engine_outside){.listen = o->listen, .peer = o->peers.item, .n_peers = o->peers.n, .secret_file = o->secret_file,
                                            .file_dir = o->file_dir, .file_bytes = (int64_t)(o->file_gib * 0x1p30)};
}

char *qr_cli_lora_name(const char *arg, const char **dir, struct qr_err *err)
{
    QR_ASSERT(arg != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    const char *end = strchr(arg, '=');
    if (!end || end == arg || end[1] == 0) {
        qr_err_set(err, QR_E_USAGE, "--lora %s: expected NAME=PATH", arg);
        return NULL;
    }
    char *name = qr_strdup(arg);
    name[end - arg] = 0;
    *dir = end + 1;
    return name;
}

/* The largest rank of the adapter in dir, which is one of such a model. */
static int32_t rank_of(const char *arg, const char *dir, const struct qr_model_config *c, int32_t rank_max, struct qr_err *err)
{
    struct qr_lora_file *f;
    int rc = qr_lora_file_open(&f, dir, NULL, SIZE_MAX, err);
    int32_t rank = 0;
    if (rc == 0) {
        rc = qr_lora_check(c, f, rank_max, err);
        rank = qr_lora_file_rank(f);
        qr_lora_file_close(f);
    }
    return rc ? qr_err_prefix(err, "--lora %s: ", arg) : rank;
}

int32_t qr_cli_lora_one(const char **dir, const char *arg, const struct qr_source *model, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && arg != NULL);
    QR_ASSERT(model != NULL && err != NULL);
    struct qr_model_config c;
    const char *equals = strchr(arg, '=');
    const int rc = qr_model_config_from(&c, model, err);
    *dir = equals ? equals + 1 : arg;
    return rc ? rc : rank_of(arg, *dir, &c, QR_LORA_RANK_MAX, err);
}

int qr_cli_lora_config(struct qr_engine_config *c, const struct qr_cli_lora *l, int32_t more, const struct qr_source *model, struct qr_err *err)
{
    QR_ASSERT(c != NULL && l != NULL && model != NULL);
    QR_ASSERT(more >= 0 && err != NULL);
    struct qr_model_config config;
    int32_t most = 16;
    c->lora_slots = l->slots > 0 ? (int32_t)l->slots : l->adapters.n + more;
    if (c->lora_slots < l->adapters.n)
        return qr_err_set(err, QR_E_USAGE, "--lora-slots %d, expected at least %d: there are so many --lora", c->lora_slots, l->adapters.n);
    int rc = l->adapters.n > 0 ? qr_model_config_from(&config, model, err) : 0;
    for (int32_t i = 0; rc == 0 && i < l->adapters.n; i++) {
        const char *arg = l->adapters.item[i], *dir;
        char *name = qr_cli_lora_name(arg, &dir, err);
        const int32_t rank = name ? rank_of(arg, dir, &config, l->rank_max > 0 ? (int32_t)l->rank_max : QR_LORA_RANK_MAX, err) : err->code;
        qr_free(name);
        rc = rank < 0 ? rank : 0;
        most = rank > most ? rank : most;
    }
    c->lora_rank_max = l->rank_max > 0 ? (int32_t)l->rank_max : most;
    return rc;
}

static int one_line(const char *line, size_t len, int (*each)(void *, const struct qr_json *, struct qr_buf *, struct qr_err *),
                    void *user, struct qr_buf *out, struct qr_err *err)
{
    struct qr_json *v;
    int rc = qr_json_parse_line(&v, line, len, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    qr_buf_clear(out);
    rc = each(user, v, out, err);
    qr_json_free(v);
    if (rc == 0 && out->len > 0) {
        qr_buf_put_byte(out, '\n');
        if (fwrite(out->data, 1, out->len, stdout) != out->len)
            rc = qr_err_set(err, QR_E_IO, "cannot write to stdout: %s", strerror(errno));
    }
    return rc;
}

/* How far a file is read, where stderr alone is a terminal: results on the terminal are progress enough. */
static void show_lines(struct qr_progress *p, FILE *in)
{
    struct stat st;
    if (!qr_progress_due(p) || isatty(STDOUT_FILENO) || fstat(fileno(in), &st) != 0 || !S_ISREG(st.st_mode))
        return;
    const off_t at = ftello(in);
    p->shown_us = 0; /* due at once */
    if (at >= 0 && at <= st.st_size)
        qr_progress_show_bytes(p, (uint64_t)at, (uint64_t)st.st_size);
}

int qr_cli_each_line(FILE *in, int (*each)(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err), void *user,
                     struct qr_err *err)
{
    QR_ASSERT(in != NULL && each != NULL);
    struct qr_buf out = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;
    struct qr_progress progress;
    qr_progress_open(&progress, "reading lines");
    for (int64_t n = 1; rc == 0 && (len = getline(&line, &cap, in)) >= 0; n++) {
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            len--;
        if (len == 0)
            continue;
        rc = (size_t)len > LINE_BYTES_MAX ? qr_err_set(err, QR_E_TOO_LARGE, "%zd bytes; a line may have %zu", len, LINE_BYTES_MAX)
                                          : one_line(line, (size_t)len, each, user, &out, err);
        if (rc != 0)
            qr_err_prefix(err, "input line %lld: ", (long long)n);
        show_lines(&progress, in);
    }
    qr_progress_end(&progress);
    if (rc == 0 && ferror(in))
        rc = qr_err_set(err, QR_E_IO, "cannot read the input: %s", strerror(errno));
    free(line);
    qr_buf_release(&out);
    if (fflush(stdout) != 0 && rc == 0)
        rc = qr_err_set(err, QR_E_IO, "cannot write to stdout: %s", strerror(errno));
    return rc;
}

int qr_cli_ids(struct qr_ids *out, const struct qr_json *array, const char *param, struct qr_err *err)
{
    QR_ASSERT(out != NULL && param != NULL);
    if (qr_json_is_null(array) || qr_json_type(array) != QR_JSON_T_ARRAY)
        return qr_err_at(err, QR_E_INVALID, param, "'%s' must be an array of token ids", param);
    for (const struct qr_json *v = qr_json_first(array); v; v = qr_json_after(v)) {
        int64_t id;
        if (!qr_json_i64(v, &id) || id < INT32_MIN || id > INT32_MAX)
            return qr_err_at(err, QR_E_INVALID, param, "'%s' must hold integers, found a %s", param, qr_json_type_name(qr_json_type(v)));
        qr_ids_push(out, (int32_t)id);
    }
    return 0;
}

int64_t qr_cli_requests_bytes(int64_t asked, int64_t left)
{
    QR_ASSERT(asked >= QR_CLI_REQUESTS_MIN);
    const int64_t most = left / 2 > QR_CLI_REQUESTS_MIN ? left / 2 : QR_CLI_REQUESTS_MIN;
    return asked < most ? asked : most;
}

int64_t qr_cli_grammars_bytes(int64_t asked, int64_t left)
{
    QR_ASSERT(asked >= QR_CLI_REQUESTS_MIN);
    const int64_t most = left / 4 > QR_CLI_REQUESTS_MIN ? left / 4 : QR_CLI_REQUESTS_MIN;
    return asked < most ? asked : most;
}
