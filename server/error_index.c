#include "server/error_index.h"

#include <string.h>

#include "base/assert.h"

/* Numbers are never given again to another meaning. */
static const struct qr_error_row rows[] = {
    {"Q100", "invalid_value", "400", "A field of the body has a wrong type or value; param names it.", "Correct the field; /docs lists types and bounds."},
    {"Q101", "context_length_exceeded", "400", "Prompt and answer do not fit into the context.",
     "Shorten the prompt, lower max_tokens, set truncate_prompt_tokens, or serve with a larger --max-len."},
    {"Q102", "unsupported", "400", "The field, the model or the schema asks for something that is not computed here.",
     "Leave it out, or use what the message names."},
    {"Q103", "too_large", "400, 413", "The request passes a limit on size, depth or count.", "Send less, or raise the limit that the message names."},
    {"Q104", "no_room", "400", "The request alone needs more cache or memory than there is.",
     "Shorten it, or give the server more (--kv-tokens, --max-bodies-size)."},
    {"Q105", "no_chat_template", "400", "The model has no chat template.", "Use /v1/completions, or a model with a template."},
    {"Q110", "unknown_route", "404", "There is no such path.", "The message names the paths there are; /docs lists all."},
    {"Q111", "model_not_found", "404", "No model or adapter has that name.", "GET /v1/models lists the names."},
    {"Q112", "not_found", "404", "What the path or a field names does not exist, or belongs to another key.",
     "Check the id; stored responses end with --responses-ttl."},
    {"Q113", "method_not_allowed", "405", "The path takes another method.", "The Allow header names it."},
    {"Q114", "body_too_large", "413", "The body is larger than --max-body-size.", "Send less, or raise the limit."},
    {"Q115", "unsupported_media_type", "415", "The body is not declared as JSON, or is compressed.",
     "Send Content-Type: application/json and no Content-Encoding."},
    {"Q116", "expectation_failed", "417", "An Expect header asks for something else than 100-continue.", "Leave the header out."},
    {"Q117", "bad_http", "400, 501, 505", "The request is no valid HTTP.", "Look at the client, or at what is between it and the server."},
    {"Q118", "header_too_large", "414, 431", "The request's head or path is larger than --max-header-size.", "Send less, or raise the limit."},
    {"Q200", "missing_api_key", "401", "The server asks for a key.", "Send Authorization: Bearer KEY."},
    {"Q201", "invalid_api_key", "401", "The key is none of the server's.", "Check the key; SIGHUP reads key files again."},
    {"Q202", "admin_required", "403", "The route needs an admin key.", "Use one; --admin-key sets it."},
    {"Q203", "host_not_allowed", "403", "The Host header names another server: a page's name may have been pointed at this machine.",
     "Start with --allowed-host NAME."},
    {"Q204", "denied", "403", "The key may not do that.", "Use another key."},
    {"Q300", "queue_full", "429", "As many requests wait as may.", "Try again after Retry-After; more servers, or --max-waiting."},
    {"Q301", "rate_limit_exceeded", "429", "A limit of the key is reached: requests or tokens a minute, or requests at once.",
     "Wait for Retry-After; the x-ratelimit-* headers say what is left."},
    {"Q302", "overloaded", "503", "There is no memory for the request beside others.", "Try again after Retry-After."},
    {"Q303", "queue_timeout", "503", "The request waited for --queue-timeout and was not begun.", "Try again later; the server has more work than it can do."},
    {"Q304", "timeout", "408, 504", "The request came too slowly (408), or its answer took longer than its timeout or --request-timeout (504).",
     "Ask for less, or raise the limit."},
    {"Q305", "pins_full", "429", "Pins hold as many blocks as they may, or there are as many pins as may be.",
     "DELETE /v1/cache/pin/{id}; or raise --kv-pinned-share, --kv-tokens."},
    {"Q306", "too_late", "429, 503", "The first token would come later than --ttft-goal, or than the request's timeout, known at arrival (429) or later (503).",
     "Try again after Retry-After, or ask for less; more servers, or a longer goal."},
    {"Q400", "loading", "503", "The model is being loaded.", "Try again in a moment; /readyz turns 200."},
    {"Q401", "load_failed", "503", "The model could not be loaded.", "The server's log says why."},
    {"Q402", "shutting_down", "503", "The server finishes what runs and takes nothing new.", "Ask another server, or wait for the next start."},
    {"Q403", "lost", "503", "A process that computes the model is gone; the server ends.", "A supervisor starts it again."},
    {"Q404", "cancelled", "503", "The request was cancelled by an operator or by the server.", "Send it again if it was not meant."},
    {"Q500", "internal_error", "500", "A check inside the program failed for this request alone.",
     "Please report the message and x-request-id; the same request would fail again."},
    {"Q501", NULL, "any", "An error without a code.", "The message says what happened."},
};

const struct qr_error_row *qr_error_rows(int32_t *n)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(rows[QR_COUNT(rows) - 1].code == NULL);
    *n = QR_COUNT(rows);
    return rows;
}

const struct qr_error_row *qr_error_row_of(const char *code)
{
    int i = 0;
    while (rows[i].code && (!code || strcmp(rows[i].code, code) != 0))
        i++;
    QR_ASSERT(i < QR_COUNT(rows));
    QR_ASSERT(rows[i].id != NULL);
    return &rows[i];
}

void qr_error_rows_put_markdown(struct qr_buf *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(rows[0].id != NULL);
    qr_buf_put_str(out, "# Errors\n\nMade by `quire reference`. `error.id`, and the header `x-error-id` of every API, stay the same over versions.\n\n"
                        "| id | code | status | meaning | what to do |\n|---|---|---|---|---|\n");
    for (int i = 0; i < QR_COUNT(rows); i++)
        qr_buf_printf(out, "| %s | %s%s%s | %s | %s | %s |\n", rows[i].id, rows[i].code ? "`" : "", rows[i].code ? rows[i].code : "none",
                      rows[i].code ? "`" : "", rows[i].status, rows[i].meaning, rows[i].remedy);
}
