/* fuzz_responses - bodies of OpenAI's Responses API: an error that names its cause, or a chat body that chat takes or refuses, each
 * error in the door's words, and what is kept of the body is JSON.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "server/api_error.h"
#include "server/openai.h"
#include "server/responses.h"

static void check_error(const struct qr_err *err)
{
    QR_ASSERT(err->code == QR_E_INVALID || err->code == QR_E_TOO_LARGE || err->code == QR_E_UNSUPPORTED ||
              err->code == QR_E_NOT_FOUND);
    QR_ASSERT(err->msg[0] != 0);
}

static void check_renamed(const struct qr_door_in *in, const struct qr_err *err)
{
    struct qr_api_error e = {0};
    qr_api_error_from(&e, err);
    qr_door_rename(&qr_door_responses, &in->sources, &e);
    QR_ASSERT(strlen(e.param) < sizeof e.param && strlen(e.message) < sizeof e.message);
}

/* JSON between these, or more of it than a body may be. */
static void check_json(const char *before, const char *text, size_t n, const char *behind)
{
    struct qr_buf b = {0};
    struct qr_json *v = NULL;
    struct qr_err err = {0};
    qr_buf_put_str(&b, before);
    qr_buf_put(&b, text, n);
    qr_buf_put_str(&b, behind);
    const int rc = qr_json_parse(&v, b.data, b.len, &qr_json_limits_request, &err);
    QR_ASSERT(rc == 0 || rc == QR_E_TOO_LARGE);
    qr_json_free(v);
    qr_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct qr_params_context context = {.ctx_max = 256, .vocab = 300};
    struct qr_door_in in = {0};
    struct qr_params p;
    struct qr_responses_kept kept;
    struct qr_err err = {0};
    if (qr_door_translate(&qr_door_responses, &in, (const char *)data, n, &err) != 0) {
        check_error(&err);
        qr_door_in_release(&in);
        return 0;
    }
    check_json("", in.chat.data, in.chat.len, "");
    QR_ASSERT(in.kept.len >= sizeof kept);
    memcpy(&kept, in.kept.data, sizeof kept);
    QR_ASSERT(sizeof kept + kept.n_members + kept.n_items == in.kept.len);
    check_json("{", in.kept.data + sizeof kept, kept.n_members, "}");
    check_json("[", in.kept.data + sizeof kept + kept.n_members, kept.n_items, "]");
    if (qr_params_parse(&p, QR_API_CHAT, in.chat.data, in.chat.len, &context, &err) == 0) {
        QR_ASSERT(p.messages != NULL && p.n == 1 && qr_json_count(p.messages) >= 1);
        qr_params_release(&p);
    } else {
        check_error(&err);
        check_renamed(&in, &err);
    }
    qr_door_in_release(&in);
    return 0;
}
