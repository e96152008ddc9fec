/* call_form.c - the form of a call's answers: the grammar that its fields make, how long it may think, and a parser for each choice. Made on libuv's pool
 * in the call's account; the grammar itself belongs to the server (forms.h). */
#include "base/assert.h"
#include "server/call.h"
#include "server/forms.h"

static void make_parsers(struct qr_call *call, const struct qr_dialect *d)
{
    const struct qr_params *p = &call->params;
    const struct qr_answer_options options = {.tools = p->tools.callable, .calls_are_text = !p->tools.callable, .starts_inside = call->thinking.begun,
                                              .parse_reasoning = p->thinking.separate, .single = !p->tools.parallel};
    call->parses = true;
    for (int32_t i = 0; i < call->n_choices; i++)
        call->choice[i].parser = qr_answer_parser_new(d, &options);
}

/* Where thinking is ended by a marker, the engine has to know it. */
static int check_budget(const struct qr_call *call, const struct qr_dialect *d, struct qr_err *err)
{
    const struct qr_thinking *t = qr_forms_thinking(call->server->forms);
    if (call->params.thinking.budget < 0 || !d || !qr_dialect_has_reasoning(d) || t->n_end > 0)
        return 0;
    return qr_err_at(err, QR_E_UNSUPPORTED, "thinking_token_budget", "thinking_token_budget: this model's end of thinking is more than %d tokens; leave it out",
                     QR_MARKER_MAX);
}

bool qr_call_form(struct qr_call *call, bool thinks)
{
    QR_ASSERT(call != NULL && call->choice != NULL);
    QR_ASSERT(call->grammar == NULL && !call->parses);
    if (call->kind->renders)
        return true;
    const struct qr_params *p = &call->params;
    const struct qr_dialect *d = call->kind->api == QR_API_CHAT ? qr_forms_dialect(call->server->forms) : NULL;
    const struct qr_form form = {.demand = &p->demand, .tools = d ? &p->tools : NULL, .thinks = d && thinks, .starts_inside = d && call->thinking.begun};
    struct qr_err err = {0};
    int rc = check_budget(call, d, &err);
    rc = rc ? rc : qr_forms_compile(call->server->forms, &call->grammar, &form, &err);
    if (rc != 0) {
        qr_call_fail(call, &err);
        return false;
    }
    if (d && (p->tools.callable || qr_dialect_has_reasoning(d)))
        make_parsers(call, d);
    return true;
}

void qr_call_form_request(struct qr_call *call, struct qr_request *r)
{
    QR_ASSERT(call != NULL && r != NULL);
    QR_ASSERT(call->n_pieces > 0);
    r->thinking = call->thinking;
    if (call->grammar && !r->grammar)
        r->grammar = qr_grammar_ref(call->grammar);
}

void qr_call_form_release(struct qr_call *call)
{
    QR_ASSERT(call != NULL);
    QR_ASSERT(call->choice != NULL || call->n_choices == 0);
    for (int32_t i = 0; i < call->n_choices; i++)
        qr_answer_parser_free(call->choice[i].parser);
    qr_grammar_unref(call->grammar);
    call->grammar = NULL;
}
