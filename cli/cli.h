/* cli.h - what the subcommands share: option rows for a model and an engine, JSON lines in and out, exit statuses.
 * Every command is one `struct qr_command`, which says what it is called, takes and does.
 */
#ifndef QR_CLI_CLI_H
#define QR_CLI_CLI_H

#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/command.h"
#include "base/err.h"
#include "base/json.h"
#include "base/option.h"
#include "base/progress.h"
#include "comm/launch.h"
#include "engine/engine.h"
#include "hub/hub.h"
#include "kernels/backend.h"
#include "model/model.h"

/* The commands, in the order of --help (main.c). */
extern const struct qr_command *const qr_cli_commands[];
extern const int32_t qr_cli_n_commands;
extern const struct qr_command qr_cmd_serve, qr_cmd_generate, qr_cmd_score, qr_cmd_tokenize, qr_cmd_detokenize, qr_cmd_template, qr_cmd_grammar,
    qr_cmd_parse, qr_cmd_check, qr_cmd_pull, qr_cmd_list, qr_cmd_rm, qr_cmd_plan, qr_cmd_data, qr_cmd_data_tokenizer, qr_cmd_train, qr_cmd_lora,
    qr_cmd_quantize, qr_cmd_bench, qr_cmd_doctor, qr_cmd_reference;

/* Runs the command of a group that argv[1] names; without one prints the group's help. Returns the exit status. */
int qr_cli_group(const struct qr_command *group, int argc, char **argv);

/* A line on stderr for each variable QUIRE_* that looks as if it were one of this command's and is none. */
void qr_cli_warn_variables(const struct qr_command *c);

/* ---- options ---- */

struct qr_cli_model {
    const char *model, *device, *isa, *cpus, *cache_packed;
    int32_t dtype, quantize, kv_cache; /* enum qr_compute, enum qr_quantize, enum qr_kv_cache */
    int32_t tune;                      /* enum qr_tune_mode */
    int64_t threads, tensor_parallel;
    struct qr_comm_meeting meeting;    /* of commands with QR_CLI_MEETING_ROWS */
    struct qr_hub_options hub;         /* of a model that is named ORG/NAME */
    bool pin, deterministic;
};

struct qr_cli_engine {
    int64_t max_len, max_running, max_waiting, max_step_tokens, max_chunk_tokens, block_tokens, kv_bytes, kv_tokens;
    double kv_host_gib, kv_pinned_share;
    int64_t itl_goal_us, ttft_goal_us, draft_tokens;
    int32_t policy, speculate; /* enum qr_sched_policy; index of its choices */
    int32_t sharing;           /* no option: processes that this machine's memory is shared by; 0: one */
    bool prefix_cache;
    const char *draft_model;
};

/* Where blocks of the cache come from and go to, beside the process. */
struct qr_cli_outside {
    const char *listen, *secret_file, *file_dir;
    struct qr_str_list peers;
    double file_gib;
};

#define QR_CLI_OUTSIDE_ROWS(T, o)                                                                                                 \
    {.name = "peer-listen", .type = QR_OPT_STR, .offset = offsetof(T, o.listen), .arg = "ADDRESS", .group = "Peers",                \
     .help = "Lend blocks of the cache to other quire processes that connect here: HOST:PORT, unix:PATH (by shared memory), or ucx:HOST:PORT."}, \
    {.name = "peer", .type = QR_OPT_LIST, .offset = offsetof(T, o.peers), .arg = "ADDRESS", .group = "Peers",                      \
     .help = "Fetch blocks of prompts from the process that listens there, where that is faster than computing them; may be repeated. Answers' bytes " \
             "are the same. It has to be the same program, model and settings of numbers."},                                     \
    {.name = "peer-secret-file", .type = QR_OPT_STR, .offset = offsetof(T, o.secret_file), .arg = "FILE", .group = "Peers",         \
     .help = "A file of mode 0600 with a secret that all peers have: needed for addresses beyond this machine."},                 \
    {.name = "kv-file-dir", .type = QR_OPT_STR, .offset = offsetof(T, o.file_dir), .arg = "DIR", .group = "Cache",                  \
     .help = "Keep full blocks of prompts and answers in files of DIR, too, within a second of their step; the next start finds them. One process has a " \
             "directory."},                                                                                                     \
    {.name = "kv-file-gib", .type = QR_OPT_FLOAT, .offset = offsetof(T, o.file_gib), .builtin = "10", .min = 0.001, .max = 1e6,     \
     .arg = "GIB", .group = "Cache", .help = "What the files of --kv-file-dir may take; the oldest go first."}

struct qr_cli_lora {
    struct qr_str_list adapters; /* NAME=PATH */
    int64_t slots, rank_max;
};

#define QR_CLI_LORA_ROWS(T, l)                                                                                                    \
    {.name = "lora", .type = QR_OPT_LIST, .offset = offsetof(T, l.adapters), .arg = "NAME=PATH", .group = "Adapters",               \
     .help = "Serve the LoRA adapter in PATH (a directory of PEFT's or quire train's, or a GGUF file) under NAME, beside the model; may be repeated."},   \
    {.name = "lora-slots", .type = QR_OPT_INT, .offset = offsetof(T, l.slots), .builtin = "0", .min = 0, .max = 256, .arg = "N",    \
     .group = "Adapters", .help = "Adapters that can be loaded at once; their memory is taken at the start. 0: as many as --lora names, and with --lora-dir " \
                                  "four more."},                                                                                  \
    {.name = "lora-rank-max", .type = QR_OPT_INT, .offset = offsetof(T, l.rank_max), .builtin = "0", .min = 0, .max = 4096,        \
     .arg = "N", .group = "Adapters", .help = "Largest rank that fits a slot; 0: 16, or the largest of --lora."}

/* Rows of an option table for a struct T with members `m` (struct qr_cli_model) and `e` (struct qr_cli_engine). */
#define QR_CLI_MODEL_ROWS(T, m)                                                                                                   \
    {.name = "model", .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(T, m.model), .arg = "DIR", .group = "Model", .brief = true, \
     .help = "Model directory, GGUF file, or ORG/NAME[:FILE] of the hub, of which is fetched what the cache lacks; may be given without the flag. A "  \
             "directory holds config.json, *.safetensors and tokenizer.json."},                                                  \
    QR_HUB_ROWS(T, m.hub, "Model"),                                                                                               \
    {.name = "dtype", .type = QR_OPT_ENUM, .offset = offsetof(T, m.dtype), .builtin = "auto", .choices = "auto|f32|bf16",          \
     .arg = "TYPE", .group = "Model",                                                                                             \
     .help = "Compute type of unquantized weights; auto is what the file stores (f16: bf16 when that loses nothing, else f32)."}, \
    {.name = "quantize", .type = QR_OPT_ENUM, .offset = offsetof(T, m.quantize), .builtin = "none", .choices = QR_QUANTIZE_ALL_CHOICES, \
     .arg = "TYPE", .group = "Model", .brief = true,                                                                              \
     .help = "Round the matrices to integers while loading. int8 with a scale per output, int4 in groups of 32 (head int8); " \
             "w8a16, w4a16: weights alone, codes of 8 or 4 bits in groups of 32; fp8 (GPUs): E4M3 weights and activations."},     \
    {.name = "kv-cache-dtype", .type = QR_OPT_ENUM, .offset = offsetof(T, m.kv_cache), .builtin = "auto", .choices = "auto|f32|bf16|int8|fp8", \
     .arg = "TYPE", .group = "Model",                                                                                             \
     .help = "Type of cached keys and values: int8, and on GPUs fp8 (a scale per token and head), hold nearly twice the tokens of bf16; auto is " \
             "f32 when computing in f32, else bf16."},                                                                                               \
    {.name = "cache-packed", .type = QR_OPT_STR, .offset = offsetof(T, m.cache_packed), .arg = "DIR", .group = "Model",             \
     .help = "Keep the weights in DIR as they are packed, so that the next start maps them and packs nothing."},                  \
    {.name = "device", .type = QR_OPT_STR, .offset = offsetof(T, m.device), .builtin = "auto", .arg = "NAME", .group = "Model",    \
     .help = "Where to compute: cpu, cuda, cuda:N (several ranks: cuda:N,M), or auto: a GPU where there is one, else the processor."},              \
    {.name = "isa", .type = QR_OPT_STR, .offset = offsetof(T, m.isa), .arg = "LEVEL", .group = "Model",                            \
     .help = "Force an instruction-set level (ref, avx2, avx512, amx); the best one is taken otherwise."},                        \
    {.name = "threads", .letter = 't', .type = QR_OPT_INT, .offset = offsetof(T, m.threads), .builtin = "0", .min = 0, .max = 1024, \
     .arg = "N", .group = "Model", .brief = true,                                                                                 \
     .help = "Worker threads; 0 means one per usable core. A container's quota counts."},                                         \
    {.name = "tensor-parallel", .type = QR_OPT_INT, .offset = offsetof(T, m.tensor_parallel), .builtin = "1", .min = 1,            \
     .max = QR_COMM_RANKS_MAX, .arg = "N", .group = "Model",                                                                      \
     .help = "Share the model out to N processes, which compute every step together: of this machine, each with its part of the processors and "  \
             "--threads of its own, or those that mpirun, srun or LeaderWorkerSet have started."},                                                          \
    {.name = "cpus", .type = QR_OPT_STR, .offset = offsetof(T, m.cpus), .arg = "LIST", .group = "Model",                           \
     .help = "Processors for the worker threads, such as 0-3,8, which then are as many; several processes share them out."},                      \
    {.name = "pin", .type = QR_OPT_FLAG, .offset = offsetof(T, m.pin), .builtin = "true", .group = "Model",                        \
     .help = "Pin each worker thread to its processor, when they are all in use or listed with --cpus."},                            \
    {.name = "deterministic", .type = QR_OPT_FLAG, .offset = offsetof(T, m.deterministic), .builtin = "false", .group = "Model",  \
     .help = "On a GPU: give a row the same bits whatever is computed beside it, also where that costs more than a tenth. The processor always does."}, \
    {.name = "tune", .type = QR_OPT_ENUM, .offset = offsetof(T, m.tune), .builtin = "cached", .choices = "off|cached|now",          \
     .arg = "WHEN", .group = "Model",                                                                                             \
     .help = "How work is cut, from measurements kept per processor; speed alone depends on it. cached: what now has measured before; " \
             "now: measure this model's shapes first, which takes seconds to minutes, and keep that."}

/* The same for commands whose ranks may be started one by one. */
#define QR_CLI_MEETING_ROWS(T, m) QR_COMM_MEETING_ROWS(T, m.meeting, "Ranks")

#define QR_CLI_ENGINE_ROWS(T, e)                                                                                                  \
    {.name = "max-len", .type = QR_OPT_INT, .offset = offsetof(T, e.max_len), .builtin = "0", .min = 0, .max = 16777216, .arg = "N", \
     .group = "Limits", .brief = true,                                                                                            \
     .help = "Tokens of one sequence, prompt and output; 0 means the model's maximum, or what fits."},                            \
    {.name = "max-running", .type = QR_OPT_INT, .offset = offsetof(T, e.max_running), .builtin = "64", .min = 1, .max = 4096,      \
     .arg = "N", .group = "Limits", .help = "Sequences computed at once."},                                                       \
    {.name = "max-waiting", .type = QR_OPT_INT, .offset = offsetof(T, e.max_waiting), .builtin = "256", .min = 1, .max = 65536,    \
     .arg = "N", .group = "Limits", .help = "Sequences that may wait; one more is answered 429 at once."},                        \
    {.name = "max-step-tokens", .type = QR_OPT_INT, .offset = offsetof(T, e.max_step_tokens), .builtin = "512", .min = 1,          \
     .max = 65536, .arg = "N", .group = "Limits", .help = "Token rows of one step: decode rows first, prompt chunks in the rest."}, \
    {.name = "max-chunk-tokens", .type = QR_OPT_INT, .offset = offsetof(T, e.max_chunk_tokens), .builtin = "256", .min = 1,        \
     .max = 65536, .arg = "N", .group = "Limits", .help = "The largest prompt chunk of one sequence in a step."},                 \
    {.name = "block-tokens", .type = QR_OPT_INT, .offset = offsetof(T, e.block_tokens), .builtin = "16", .min = 1, .max = 256,     \
     .arg = "N", .group = "Cache", .help = "Tokens per cache block, a power of two."},                                            \
    {.name = "kv-bytes", .type = QR_OPT_BYTES, .offset = offsetof(T, e.kv_bytes), .builtin = "0", .min = 0, .max = 1e15,           \
     .arg = "SIZE", .group = "Cache", .help = "Memory for the cache; 0 means a quarter of what is free, or less when less is of use."}, \
    {.name = "kv-tokens", .type = QR_OPT_INT, .offset = offsetof(T, e.kv_tokens), .builtin = "0", .min = 0, .max = 1e9, .arg = "N", \
     .group = "Cache", .help = "The same in tokens."},                                                                            \
    {.name = "kv-host-gib", .type = QR_OPT_FLOAT, .offset = offsetof(T, e.kv_host_gib), .builtin = "0", .min = 0, .max = 1e6,       \
     .arg = "GIB", .group = "Cache", .help = "Host memory, pinned, to which a GPU's cached blocks go when the cache is full, and from where they come back."}, \
    {.name = "prefix-cache", .type = QR_OPT_FLAG, .offset = offsetof(T, e.prefix_cache), .builtin = "true", .group = "Cache",      \
     .help = "Reuse the blocks of prompts that begin alike."},                                                                    \
    {.name = "kv-pinned-share", .type = QR_OPT_FLOAT, .offset = offsetof(T, e.kv_pinned_share), .builtin = "0.25", .min = 0, .max = 1, \
     .arg = "SHARE", .group = "Cache",                                                                                             \
     .help = "Share of the cache's blocks that pinned prompts (POST /v1/cache/pin, --warm-up) may hold, beside room for one whole " \
             "context."},                                                                                                         \
    {.name = "policy", .type = QR_OPT_ENUM, .offset = offsetof(T, e.policy), .builtin = "mixed",                                   \
     .choices = "mixed|prefill-first|alternate", .arg = "NAME", .group = "Limits",                                                \
     .help = "How prompts and running sequences share the steps."},                                                               \
    {.name = "itl-goal", .type = QR_OPT_TIME, .offset = offsetof(T, e.itl_goal_us), .builtin = "90ms", .min = 0, .max = 3600e6,     \
     .arg = "TIME", .group = "Limits",                                                                                            \
     .help = "Gap between a sequence's tokens to aim at: prompts beside running sequences are cut so that a step takes about so long. "  \
             "0: steps are as large as --max-step-tokens allows."},                                                                  \
    {.name = "speculate", .type = QR_OPT_ENUM, .offset = offsetof(T, e.speculate), .builtin = "auto", .choices = "auto|off",       \
     .arg = "WHEN", .group = "Speculation",                                                                                       \
     .help = "Check guesses of a sequence's next tokens, from what was said before, where that is faster by what steps are measured to take. " \
             "The answers' bytes are the same."},                                                                                 \
    {.name = "draft-tokens", .type = QR_OPT_INT, .offset = offsetof(T, e.draft_tokens), .builtin = "16", .min = 1, .max = QR_DRAFT_MAX, \
     .arg = "N", .group = "Speculation", .help = "Guesses for one sequence in a step, at most."},                               \
    {.name = "draft-model", .type = QR_OPT_STR, .offset = offsetof(T, e.draft_model), .arg = "DIR", .group = "Speculation",        \
     .help = "A smaller model of the same vocabulary, a directory or GGUF file, which guesses what the model will say where that saves time; answers "  \
             "stay the same. --dtype, --quantize and --kv-cache-dtype hold of both. Its weights, and its part of the cache, take memory (quire plan)."}

/* Of git, when this was built: "1a2b3c4d", with "-dirty" behind it when files had changed; "unknown". */
const char *qr_cli_commit(void);

/* QR_E_USAGE unless --model was given and is a directory. */
int qr_cli_need_model(const struct qr_cli_model *m, struct qr_err *err);

/* Becomes --tensor-parallel ranks. Before there are threads, and behind what can be refused without them. Errors: QR_E_USAGE for what ranks cannot have
 * (--tune now; --cpus that are not there), those of qr_comm_launch. */
int qr_cli_team_begin(struct qr_comm_team *t, const struct qr_cli_model *m, struct qr_err *err);

/* What a rank that is not rank 0 does of a command with an engine, to the end of its team; returns the exit status. */
int qr_cli_follow(struct qr_comm_team *t, const struct qr_cli_model *m, const struct qr_cli_engine *e);

/* Opens a line of progress for a model's loading, which mo is to have; qr_progress_end takes it away. */
void qr_cli_progress_begin(struct qr_progress *p, struct qr_model_options *mo);

/* What a start of an engine with these settings would be refused for, as far as can be known without reading weights. */
int qr_cli_foresee(const struct qr_cli_model *m, const struct qr_cli_engine *e, const struct qr_cli_lora *l, const struct qr_cli_outside *out,
                   struct qr_err *err);

void qr_cli_model_options(struct qr_model_options *mo, struct qr_backend_options *bo, const struct qr_cli_model *m);
void qr_cli_engine_config(struct qr_engine_config *c, const struct qr_cli_engine *e);
void qr_cli_outside_config(struct qr_engine_config *c, const struct qr_cli_outside *o);

/* Sets c's slots and rank. `more` slots beside those of --lora, when their number is not given. Each adapter is held against the model before anything is
 * loaded. Errors: QR_E_USAGE; those of opening an adapter, of qr_lora_check, of reading the configuration. */
int qr_cli_lora_config(struct qr_engine_config *c, const struct qr_cli_lora *l, int32_t more, const struct qr_source *model, struct qr_err *err);

/* The NAME of NAME=PATH, to be freed with qr_free; *dir is the rest. NULL (and *err set) when it is none. */
char *qr_cli_lora_name(const char *arg, const char **dir, struct qr_err *err);

/* The largest rank of the one adapter that --lora PATH or NAME=PATH names, which fits the model, and *dir; or a negative code. Errors: as above. */
int32_t qr_cli_lora_one(const char **dir, const char *arg, const struct qr_source *model, struct qr_err *err);

/* ---- JSON lines ---- */

/* Calls each(user, line's JSON, out) for every non-empty line of `in`, then writes out and a newline to stdout. An error stops with the line's
 * number in front. Lines are limited to 64 MiB. */
int qr_cli_each_line(FILE *in, int (*each)(void *user, const struct qr_json *v, struct qr_buf *out, struct qr_err *err), void *user,
                     struct qr_err *err);

/* An array of integers that fit int32 -> ids (appended). */
int qr_cli_ids(struct qr_ids *out, const struct qr_json *array, const char *param, struct qr_err *err);

/* What requests may hold of --max-bodies-size where `left` bytes are free beside all the rest: half of them at most, as the heap, sockets and the system take
 * their part of it. */
#define QR_CLI_REQUESTS_MIN ((int64_t)1 << 20)
int64_t qr_cli_requests_bytes(int64_t asked, int64_t left);

/* The same of compiled grammars and --grammar-cache: a quarter of it at most. */
int64_t qr_cli_grammars_bytes(int64_t asked, int64_t left);

#endif
