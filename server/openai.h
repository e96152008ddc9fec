/* openai.h - bodies of /v1/chat/completions and /v1/completions: what fields there are, their types and bounds, and what they become.
 *
 * One table of fields drives the parser, the tests that go one step past every bound, and the list in docs/api.md. null means
 * absent. Unknown fields are ignored; fields that would change the answer and cannot be honoured are refused.
 * Pure: no connection, no engine; safe on any thread.
 */
#ifndef QR_SERVER_OPENAI_H
#define QR_SERVER_OPENAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answers/constraint.h"
#include "answers/dialect/dialect.h"
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

enum qr_api { QR_API_CHAT = 1, QR_API_COMPLETIONS = 2 };

#define QR_PROMPTS_MAX 128 /* prompts times n in one request */
#define QR_CACHE_SALT_MAX 128
#define QR_CHAT_DEFAULT_TOKENS 4096
#define QR_TOOLS_MAX 128
#define QR_TOOL_NAME_MAX 64

/* What the request demands of the answer's text. */
struct qr_demand {
    enum qr_constraint_kind kind;       /* NONE: nothing */
    const struct qr_json *value;        /* borrowed from doc: a schema, an array, a string. NULL: OBJECT */
    const char *field;                  /* static: the path of value, "response_format.json_schema.schema" */
    bool strict, compact;
};

/* Tools, and which of them may be called. */
struct qr_tool_params {
    const struct qr_json *given, *choice; /* borrowed from doc: as they were sent */
    const struct qr_json *shown;        /* what the chat template is given; NULL: none. Borrowed from doc, or `functions` */
    struct qr_json *functions;          /* owned: the given ones that are functions, where others are among them */
    struct qr_json *callable;           /* owned: those that may be called, NULL: none. In the order given */
    int32_t place[QR_TOOLS_MAX];        /* of callable[i] among the given ones */
    enum qr_call_choice calls;
    bool parallel;
};

struct qr_thinking_params {
    const struct qr_json *enable, *effort; /* borrowed from doc */
    int32_t budget;                     /* of tokens; -1: none */
    bool separate, include;             /* it is told apart from the content; it is a part of the answer */
    bool off;                           /* the request wants none */
};

/* What routers of other engines say of prefill and decode apart (disagg.h). */
struct qr_disagg_params {
    const char *host;                   /* borrowed from doc: of the peer that has the prompt's blocks, or computes them; NULL: none is named */
    int64_t port, bootstrap_port;       /* 0: not given */
    bool foreign;                       /* the blocks are another engine's */
    bool expected;                      /* the peer gets the same prompt at the same time */
    bool computes;                      /* the prompt is computed for another: the answer says where its blocks are */
    int32_t rank;                       /* of a worker among those of one address: always 0 */
    bool bootstrap, room;               /* SGLang's fields: who is who they do not say */
};

struct qr_params {
    struct qr_json *doc;                /* owned; everything below points into it */
    const struct qr_json *model, *prompt, *messages;         /* borrowed from doc; NULL when absent */
    const struct qr_json *documents, *template_kwargs;       /* borrowed from doc, or kwargs; NULL when absent */
    struct qr_json *kwargs;             /* owned: template_kwargs where other fields add to them */
    struct qr_demand demand;
    struct qr_tool_params tools;        /* chat */
    struct qr_thinking_params thinking; /* chat */
    struct qr_disagg_params disagg;
    const char *cache_salt;             /* borrowed from doc; NULL when absent */
    size_t cache_salt_len;
    uint64_t user;                      /* stands for a user's name; 0: none was given */
    struct qr_sampling sampling;        /* stop strings borrowed from doc, lists of ids from the next three */
    struct qr_logit_bias *bias;         /* owned */
    struct qr_ids allowed, bad;         /* owned: what sampling's point to */
    struct qr_ids prediction;           /* owned: what the client expects, as many ids as the context has at most */
    int32_t max_tokens;                 /* -1: not given */
    int64_t timeout_us;                 /* the longest time that it may take; 0: not given */
    int32_t n, priority;
    int32_t top_logprobs;               /* chat */
    bool logprobs, prompt_logprobs;     /* prompt_logprobs: in the answer; echo with logprobs needs them without */
    bool stream, include_usage, continuous_usage, timings, echo, return_token_ids, tokens_as_ids;
    bool add_generation_prompt, continue_final, add_special, has_seed;
};

/* What the parser must know of the model. */
struct qr_params_context {
    int32_t ctx_max, vocab;
    int64_t timeout_max_us;              /* 0: any */
    const struct qr_tokenizer *tokenizer; /* borrowed: of bad_words and prediction; NULL: they are checked only */
    const struct qr_model_config *model; /* borrowed: defaults from generation_config.json; NULL: none */
};

/* Errors: QR_E_INVALID / QR_E_TOO_LARGE / QR_E_UNSUPPORTED with the JSON path in param. On failure nothing is left to release. */
int qr_params_parse(struct qr_params *p, enum qr_api api, const char *body, size_t len, const struct qr_params_context *context,
                    struct qr_err *err);
void qr_params_release(struct qr_params *p);

/* ---- the table ---- */

/* OTHER without a reader: the value itself, at `offset`. */
enum qr_field_type { QR_FIELD_BOOL, QR_FIELD_INT, QR_FIELD_FLOAT, QR_FIELD_OTHER, QR_FIELD_REFUSED, QR_FIELD_IGNORED };

struct qr_field {
    const char *name;
    uint8_t apis;              /* QR_API_CHAT | QR_API_COMPLETIONS */
    uint8_t type;              /* enum qr_field_type */
    bool max_is_ctx;           /* INT: the context length is the maximum */
    size_t offset;             /* in struct qr_params */
    double min, max;
    const char *why;           /* REFUSED: what to say */
    enum qr_json_type json;    /* OTHER: its type, */
    const char *expected;      /* and that in words; NULL: `read` looks at it */
    int (*read)(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err); /* OTHER */
};
const struct qr_field *qr_fields(int32_t *n);

/* Readers of the structured fields (openai_fields.c); p and v are never NULL. */
typedef int qr_field_reader(struct qr_params *p, const struct qr_json *v, const struct qr_params_context *context, struct qr_err *err);
qr_field_reader qr_read_messages, qr_read_prompt, qr_read_stop, qr_read_stop_token_ids, qr_read_logit_bias,
    qr_read_stream_options, qr_read_seed, qr_read_logprobs_completions, qr_read_cache_salt, qr_read_template_kwargs,
    qr_read_modalities, qr_read_best_of, qr_read_allowed_token_ids, qr_read_bad_words, qr_read_prediction, qr_read_user,
    qr_read_timeout;

/* What the answer must be (openai_demand.c): one of them in a request. */
qr_field_reader qr_read_response_format, qr_read_structured_outputs, qr_read_demand;

/* Tools and thinking (openai_tools.c). settle: once all fields are read, what they mean together. */
qr_field_reader qr_read_tools, qr_read_reasoning_format;
int qr_tools_settle(struct qr_params *p, struct qr_err *err);
int qr_thinking_settle(struct qr_params *p, struct qr_err *err);

/* `found` as text for messages: at most 60 bytes of its JSON. */
const char *qr_json_excerpt(char out[72], const struct qr_json *v);

/* QR_E_INVALID: "PATH must be EXPECTED, found a TYPE: EXCERPT". */
int qr_wrong_type(struct qr_err *err, const char *path, const char *expected, const struct qr_json *found);

/* An integer, 64 bits of it. */
int qr_read_whole(int64_t *out, const struct qr_json *v, const char *name, int64_t min, int64_t max, struct qr_err *err);

/* The field "timeout" of any request, in seconds: from 0.1 to max_us, that of --request-timeout. */
int qr_read_timeout_us(int64_t *out_us, const struct qr_json *v, int64_t max_us, struct qr_err *err);

/* A request's body, an object, of its members in `wanted` (ended by NULL). body NULL: it is empty. *doc is to be
 * freed, also after an error. */
int qr_body_parse(struct qr_json **doc, const char *body, size_t len, const char *const *wanted, struct qr_err *err);

/* A member of a body: null is as if it were not there. */
struct qr_member {
    const char *name;
    enum qr_json_type type;                 /* NULL: the caller looks at it */
    const char *expected;                   /* "a string" */
    const struct qr_json **value;           /* becomes NULL where there is none */
    bool required;
};

/* The body as a JSON object of these members, to be freed (NULL is fine) also after an error. */
int qr_members_read(struct qr_json **doc, const char *body, size_t len, const struct qr_member *member, int32_t n, struct qr_err *err);

/* Token ids of an array, errors by their place ("prompt[3]"); ids NULL: only checked. */
struct qr_ids;
int qr_read_token_ids(struct qr_ids *ids, const struct qr_json *array, const char *path, int32_t vocab, struct qr_err *err);

/* Messages as OpenAI defines them (openai_messages.c). */
int qr_messages_check(const struct qr_json *messages, struct qr_err *err);

/* A string, or text parts: what a message's content is. */
int qr_content_check(const struct qr_json *content, const char *path, struct qr_err *err);

/* *owned becomes a copy of checked messages as a template reads them: `reasoning` is there as `reasoning_content`, too; plain: it knows no
 * calls, so that calls and their results become text; tools (NULL: none) stand in front, in a message of that role. NULL where nothing has
 * to change. Errors: those of qr_json_parse, for a copy that passes the limits. */
int qr_messages_dress(struct qr_json **owned, const struct qr_json *messages, bool plain, const struct qr_json *tools, const char *role, struct qr_err *err);

/* *owned becomes a copy for templates that know a system message in front alone: later ones are parts of the user's message before them, or one of the
 * user's. NULL where there are none. Errors: as above. */
int qr_messages_join_system(struct qr_json **owned, const struct qr_json *messages, struct qr_err *err);

#endif
