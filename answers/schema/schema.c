/* schema.c - one build from beginning to end: references are found, the root becomes a goal, and the goal is written. Bounds of memory and work, and
 * paths of errors, are here. Owned by the caller's thread. */
#include "answers/schema/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"
#include "base/mem.h"

#define ARENA_BYTES ((size_t)24 << 20)
#define STEPS_MAX 200000

/* ---- paths ---- */

/* Appends one step of a path: ".name", or "["name"]" where the name is no word. */
static void put_step(struct qr_buf *path, const char *key, int32_t index)
{
    if (!key) {
        qr_buf_printf(path, "[%d]", (int)index);
        return;
    }
    const bool word = key[0] != 0 && key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-")] == 0;
    if (word) {
        qr_buf_put_byte(path, '.');
        qr_buf_put_str(path, key);
        return;
    }
    qr_buf_put_byte(path, '[');
    qr_json_put_str(path, key, strlen(key));
    qr_buf_put_byte(path, ']');
}

/* Puts the path from v to `target` behind what path holds; false: it is not in v. */
static bool find_path(struct qr_buf *path, const struct qr_json *v, const struct qr_json *target)
{
    const size_t len = path->len;
    int32_t i = 0;
    if (v == target)
        return true;
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m), i++) {
        put_step(path, qr_json_key(m), i);
        if (find_path(path, m, target))
            return true;
        path->len = len;
    }
    return false;
}

bool qr_sc_fail(struct qr_sc *sc, enum qr_code code, const struct qr_json *at, const char *fmt, ...)
{
    QR_ASSERT(sc != NULL && fmt != NULL);
    char text[sizeof sc->err->msg];
    struct qr_buf path = {0};
    va_list args;
    if (sc->code != 0)
        return false;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    qr_buf_put_byte(&path, '$');
    if (at)
        find_path(&path, sc->root, at);
    sc->code = qr_err_at(sc->err, code, path.data ? path.data : "$", "%s", text);
    qr_buf_release(&path);
    return false;
}

/* ---- bounds ---- */

bool qr_sc_step(struct qr_sc *sc, const struct qr_json *at, int32_t n)
{
    QR_ASSERT(n >= 0);
    if (sc->code != 0)
        return false;
    sc->n_steps += n;
    return sc->n_steps <= STEPS_MAX || qr_sc_fail(sc, QR_E_TOO_LARGE, at, "the schema takes more than %d steps to compile", STEPS_MAX);
}

void *qr_sc_alloc(struct qr_sc *sc, size_t n, size_t size)
{
    size_t n_bytes;
    void *p = qr_mul_size(n, size, &n_bytes) ? qr_arena_try(&sc->arena, n_bytes, 8) : NULL;
    if (p)
        memset(p, 0, n_bytes);
    else
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "the schema takes more than %zu MiB to compile", ARENA_BYTES >> 20);
    return p;
}

/* ---- the build ---- */

static void init(struct qr_sc *sc)
{
    qr_arena_init(&sc->arena, ARENA_BYTES);
    qr_map_init(&sc->literal_map, 64);
    qr_map_init(&sc->goal_map, 64);
    qr_map_init(&sc->place, 64);
    qr_map_init(&sc->regex_map, 8);
    qr_map_init(&sc->index_map, 8);
    sc->n_literals = 0;
    for (int32_t i = 0; i < 2; i++) { /* TRUE and FALSE: no schema has their keys */
        sc->literal = QR_GROW(sc->literal, sc->n_literals, sc->literals_cap);
        memset(&sc->literal[sc->n_literals++], 0, sizeof *sc->literal);
    }
    struct qr_sc_set set = {.n = 0};
    qr_sc_goal_of(sc, &set);
    set.n = 1;
    set.id[0] = QR_SC_LIT_FALSE;
    qr_sc_goal_of(sc, &set);
}

static void release(struct qr_sc *sc)
{
    qr_sc_texts_release(sc);
    qr_sc_refs_release(sc);
    qr_sc_goals_release(sc);
    qr_arena_release(&sc->arena);
}

static int32_t write_root(struct qr_sc *sc)
{
    struct qr_sc_set set;
    set.n = 0;
    qr_sc_set_add(sc, &set, qr_sc_schema_literal(sc, sc->root, 0, false));
    if (sc->options.object_only)
        qr_sc_set_add(sc, &set, qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_TYPES, .number = QR_SC_OBJECT}));
    const int32_t e = qr_sc_write(sc, qr_sc_goal_of(sc, &set));
    if (e == QR_EXPR_NONE && sc->code == 0 && !qr_exprs_failed(sc->x))
        qr_sc_fail(sc, QR_E_INVALID, sc->root, "no value is valid by this schema");
    return e;
}

int qr_schema_build(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, const struct qr_schema_options *options, struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(schema != NULL && options != NULL && err != NULL);
    struct qr_sc sc = {.x = x, .root = schema, .options = *options, .err = err};
    init(&sc);
    if (!qr_sc_is_schema(schema))
        qr_sc_fail(&sc, QR_E_INVALID, NULL, "a schema must be an object, true or false, found %s", qr_json_type_name(qr_json_type(schema)));
    if (sc.code == 0)
        qr_sc_words_make(&sc);
    if (sc.code == 0 && qr_sc_refs_read(&sc) == 0 && options->strict)
        qr_sc_check_strict(&sc);
    if (sc.code == 0)
        *out = write_root(&sc);
    release(&sc);
    return sc.code;
}
