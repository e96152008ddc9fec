/* fuzz_request - bodies of chat and completion calls: an error that names its cause, or parameters within every bound that the engine
 * relies on, and a request made of them. The first byte chooses the API.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "server/disagg.h"
#include "server/openai.h"

#define VOCAB 300
#define CTX 256

static void check_error(const struct qr_err *err)
{
    QR_ASSERT(err->code == QR_E_INVALID || err->code == QR_E_TOO_LARGE || err->code == QR_E_UNSUPPORTED);
    QR_ASSERT(err->msg[0] != 0);
    QR_ASSERT(strlen(err->param) < sizeof err->param);
}

static void check_sampling(const struct qr_sampling *s)
{
    QR_ASSERT(s->temperature >= 0 && s->temperature <= 2);
    QR_ASSERT(s->top_p > 0 && s->top_p <= 1);
    QR_ASSERT(s->min_p >= 0 && s->min_p <= 1);
    QR_ASSERT(s->top_k >= 0 && s->min_tokens >= 0 && s->min_tokens <= CTX);
    QR_ASSERT(s->presence >= -2 && s->presence <= 2 && s->frequency >= -2 && s->frequency <= 2);
    QR_ASSERT(s->repetition > 0 && s->repetition <= 100);
    QR_ASSERT(s->n_logprobs >= -1 && s->n_logprobs <= QR_TOP_LOGPROBS_MAX);
    QR_ASSERT(s->n_prompt_logprobs >= -1 && s->n_prompt_logprobs <= QR_TOP_LOGPROBS_MAX);
    QR_ASSERT(s->n_stops >= 0 && s->n_stops <= QR_STOPS_MAX && s->n_stop_ids >= 0 && s->n_stop_ids <= QR_STOP_IDS_MAX);
    for (int32_t i = 0; i < s->n_stops; i++) {
        size_t n = strlen(s->stop[i]);
        QR_ASSERT(n >= 1 && n <= QR_STOP_BYTES_MAX && qr_utf8_valid_prefix(s->stop[i], n) == n);
    }
    for (int32_t i = 0; i < s->n_stop_ids; i++)
        QR_ASSERT(s->stop_ids[i] >= 0 && s->stop_ids[i] < VOCAB);
    QR_ASSERT(s->truncate_prompt >= -1 && s->truncate_prompt <= CTX && s->n_allowed >= 0 && s->n_allowed <= VOCAB && s->n_bad == 0);
    for (int32_t i = 0; i < s->n_allowed; i++)
        QR_ASSERT(s->allowed[i] >= 0 && s->allowed[i] < VOCAB);
    QR_ASSERT(s->n_logit_bias >= 0 && s->n_logit_bias <= QR_LOGIT_BIAS_MAX);
    for (int32_t i = 0; i < s->n_logit_bias; i++)
        QR_ASSERT(s->logit_bias[i].id >= 0 && s->logit_bias[i].id < VOCAB && s->logit_bias[i].bias >= -100 && s->logit_bias[i].bias <= 100);
}

static void check_demand(const struct qr_demand *d)
{
    QR_ASSERT(d->kind >= QR_CONSTRAINT_NONE && d->kind <= QR_CONSTRAINT_TAGS);
    QR_ASSERT(d->kind == QR_CONSTRAINT_NONE || d->field != NULL);
    QR_ASSERT(d->kind == QR_CONSTRAINT_OBJECT || !d->value == (d->kind == QR_CONSTRAINT_NONE));
}

static void check_tools(const struct qr_tool_params *t)
{
    const int32_t n = t->callable ? qr_json_count(t->callable) : 0, n_given = t->given ? qr_json_count(t->given) : 0;
    QR_ASSERT((n > 0) == (t->calls != QR_CALL_NONE) && n <= n_given && n_given <= QR_TOOLS_MAX);
    QR_ASSERT(!t->shown == !t->callable);
    for (int32_t i = 0; i < n; i++)
        QR_ASSERT(t->place[i] < n_given && (i == 0 || t->place[i] > t->place[i - 1]));
    for (const struct qr_json *e = n ? qr_json_first(t->callable) : NULL; e; e = qr_json_after(e)) {
        const size_t len = strlen(qr_json_str(qr_json_find(qr_json_find(e, "function"), "name"), NULL));
        QR_ASSERT(len >= 1 && len <= QR_TOOL_NAME_MAX);
    }
}

static void check_disagg(const struct qr_disagg_params *d)
{
    char address[QR_PEER_ADDRESS_MAX], host[QR_PEER_ADDRESS_MAX];
    int32_t port;
    QR_ASSERT(d->port >= 0 && d->port <= QR_PORT_MAX && d->rank == 0);
    QR_ASSERT(d->host || !(d->foreign || d->expected || d->bootstrap));
    if (!d->host || !qr_disagg_address(address, sizeof address, d->host, d->port))
        return;
    qr_disagg_split(host, sizeof host, &port, address);
    QR_ASSERT(strlen(host) >= 1 && (port == d->port || strncmp(address, "unix:", 5) == 0));
}

static void make_request(const struct qr_params *p)
{
    static const int32_t prompt[3] = {1, 2, 3};
    struct qr_sampling s = p->sampling;
    s.max_tokens = p->max_tokens < 0 ? 16 : p->max_tokens;
    struct qr_request *r = qr_request_new(&s, prompt, 3, p->n);
    QR_ASSERT(r->n_prompt == 3 && r->ids[p->n - 1][2] == 3);
    for (int32_t i = 0; i < s.n_stops; i++)
        QR_ASSERT(strcmp(r->sampling.stop[i], s.stop[i]) == 0);
    qr_request_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct qr_params_context context = {.ctx_max = CTX, .vocab = VOCAB};
    struct qr_params p;
    struct qr_err err = {0};
    if (n < 1)
        return 0;
    enum qr_api api = data[0] & 1 ? QR_API_CHAT : QR_API_COMPLETIONS;
    if (qr_params_parse(&p, api, (const char *)data + 1, n - 1, &context, &err) != 0) {
        check_error(&err);
        return 0;
    }
    QR_ASSERT(api == QR_API_CHAT ? p.messages != NULL : p.prompt != NULL);
    QR_ASSERT(p.n >= 1 && p.n <= QR_CHOICES_MAX && p.max_tokens >= -1 && p.max_tokens <= CTX);
    QR_ASSERT(p.cache_salt_len <= QR_CACHE_SALT_MAX);
    QR_ASSERT(p.thinking.budget >= -1);
    check_sampling(&p.sampling);
    check_demand(&p.demand);
    check_tools(&p.tools);
    check_disagg(&p.disagg);
    make_request(&p);
    qr_params_release(&p);
    return 0;
}
