/* door_fuzz.h - what fuzz targets of doors (server/door.h) do with a body: an error that names its cause, or a chat body that chat takes or refuses, each
 * error in the door's words.
 */
#ifndef QR_TESTS_FUZZ_DOOR_FUZZ_H
#define QR_TESTS_FUZZ_DOOR_FUZZ_H

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "server/api_error.h"
#include "server/door.h"
#include "server/openai.h"

static void check_error(const struct qr_err *err)
{
    QR_ASSERT(err->code == QR_E_INVALID || err->code == QR_E_TOO_LARGE || err->code == QR_E_UNSUPPORTED);
    QR_ASSERT(err->msg[0] != 0);
}

static void check_renamed(const struct qr_door *door, const struct qr_door_in *in, const struct qr_err *err)
{
    struct qr_api_error e = {0};
    struct qr_buf out = {0};
    struct qr_json *v = NULL;
    struct qr_err none = {0};
    qr_api_error_from(&e, err);
    qr_door_rename(door, &in->sources, &e);
    QR_ASSERT(strlen(e.param) < sizeof e.param && strlen(e.message) < sizeof e.message);
    e.door = door;
    qr_api_error_put(&out, &e, false);
    QR_ASSERT(qr_json_parse(&v, out.data, out.len, &qr_json_limits_request, &none) == 0);
    QR_ASSERT(qr_json_find(v, "error") != NULL);
    qr_json_free(v);
    qr_buf_release(&out);
}

static void fuzz_door(const struct qr_door *door, const uint8_t *data, size_t n)
{
    static const struct qr_params_context context = {.ctx_max = 256, .vocab = 300};
    struct qr_door_in in = {0};
    struct qr_params p;
    struct qr_json *chat = NULL;
    struct qr_err err = {0};
    if (qr_door_translate(door, &in, (const char *)data, n, &err) != 0) {
        check_error(&err);
        qr_door_in_release(&in);
        return;
    }
    const int rc = qr_json_parse(&chat, in.chat.data, in.chat.len, &qr_json_limits_request, &err);
    QR_ASSERT(rc == 0 || rc == QR_E_TOO_LARGE); /* what a door writes is JSON, or more than a body may be */
    qr_json_free(chat);
    err = (struct qr_err){0};
    if (qr_params_parse(&p, QR_API_CHAT, in.chat.data, in.chat.len, &context, &err) == 0) {
        QR_ASSERT(p.messages != NULL && p.n == 1);
        QR_ASSERT(p.sampling.temperature >= 0 && p.sampling.temperature <= 2);
        qr_params_release(&p);
    } else {
        check_error(&err);
        check_renamed(door, &in, &err);
    }
    qr_door_in_release(&in);
}

#endif
