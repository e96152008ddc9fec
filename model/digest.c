#include "model/digest.h"

#include <gnu/libc-version.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/build_id.h"
#include "base/hash.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/pack/share.h"
#include "loader/weights.h"
#include "model/rope.h"

#define PIECE_BYTES ((size_t)4 << 20) /* hashed by a thread at a time */

struct pieces {
    const uint8_t *at;
    size_t n_bytes;
    struct qr_hash128 *hash;
};

static void hash_piece(const void *arg, int32_t item, int32_t worker)
{
    const struct pieces *p = arg;
    const size_t at = (size_t)item * PIECE_BYTES, n = p->n_bytes - at < PIECE_BYTES ? p->n_bytes - at : PIECE_BYTES;
    (void)worker;
    p->hash[item] = qr_hash128_plain(p->at + at, n);
}

/* Appends the hashes of its pieces. */
static void put_memory(struct qr_buf *out, const void *memory, size_t n_bytes, struct qr_backend *be)
{
    const size_t n = (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    QR_ASSERT(memory != NULL || n == 0);
    QR_ASSERT(n < INT32_MAX);
    const struct pieces p = {.at = memory, .n_bytes = n_bytes, .hash = qr_alloc(n, sizeof *p.hash)};
    if (n > 0)
        qr_backend_run(be, hash_piece, &p, (int32_t)n);
    qr_buf_put(out, p.hash, n * sizeof *p.hash);
    qr_free(p.hash);
}

static void put_rotation(struct qr_buf *out, const struct qr_rope_config *r, const struct qr_model_config *c)
{
    struct qr_rope_freqs f;
    qr_rope_freqs_init(&f, r, c->head_dim, c->ctx_max);
    qr_buf_put(out, f.inv_freq, (size_t)f.n_rot / 2 * sizeof *f.inv_freq);
    qr_buf_put(out, &f.attn_factor, sizeof f.attn_factor);
    qr_rope_freqs_release(&f);
}

/* The configuration, but for the opened context, of which nothing but frequencies depends. */
static void put_config(struct qr_buf *out, const struct qr_model_config *c)
{
    const struct qr_rope_config local = {.type = QR_ROPE_DEFAULT, .theta = c->local_theta, .factor = 1, .partial = c->rope.partial};
    struct qr_model_config bare = *c;
    bare.ctx_max = 0;
    qr_hf_config_write(out, &bare);
    put_rotation(out, &c->rope, c);
    if (c->local_theta > 0)
        put_rotation(out, &local, c);
}

int qr_model_digest(uint8_t out[QR_SHA256_BYTES], const struct qr_model *m, struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(out != NULL && m != NULL && err != NULL);
    QR_ASSERT(be != NULL && be->mem->host);
    const struct qr_weights *w = qr_model_weights(m);
    const struct qr_share *share = qr_model_share(m);
    char build[QR_BUILD_ID_TEXT];
    struct qr_buf text = {0};
    if (!qr_build_id(build)[0])
        return qr_err_set(err, QR_E_UNSUPPORTED, "this program has no build id, which says that two processes compute alike: link it with --build-id");
    qr_buf_printf(&text, "quire keys and values 1\nbuild %s\nlibc %s\nkernels %s %s\nmatrices %s\ncache %s\nrank %d of %d\n", build, gnu_get_libc_version(),
                  be->name, be->k->name, qr_dtype_name(qr_model_weight_dtype(m)), qr_dtype_name(qr_model_kv_dtype(m)), share->rank, share->size);
    put_config(&text, qr_model_config(m));
    put_memory(&text, w->region, w->region_bytes, be);
    put_memory(&text, w->embed.t.data, w->table_bytes, be);
    qr_tensor_files_drop_all(w->files); /* rows of the embedding that a step will not touch */
    qr_sha256(out, text.data, text.len, NULL, 0);
    qr_buf_release(&text);
    return 0;
}
