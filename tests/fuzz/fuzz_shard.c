/* Any bytes as a shard of prepared data, or as the index of a directory of them: a clean refusal, or contents that hold what a reader trusts. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "train/data/shard_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_index(const uint8_t *data, size_t size)
{
    struct qr_data_index m, again;
    struct qr_err err = {0};
    const int rc = qr_data_index_parse(&m, (const char *)data, size, "data.json", &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return;
    }
    struct qr_buf text = {0};
    int64_t n_docs = 0, n_tokens = 0;
    for (int32_t i = 0; i < m.n_shards; i++) {
        QR_ASSERT(m.shard[i].n_docs > 0 && m.shard[i].n_tokens > 0 && m.shard[i].n_bytes >= QR_SHARD_HEADER_BYTES);
        n_docs += m.shard[i].n_docs;
        n_tokens += m.shard[i].n_tokens;
    }
    QR_ASSERT(n_docs == m.n_docs && n_tokens == m.n_tokens && m.vocab_size > 0);
    qr_data_index_print(&text, &m);
    QR_ASSERT(qr_data_index_parse(&again, text.data, text.len, "data.json", &err) == 0);
    QR_ASSERT(again.n_shards == m.n_shards && again.tokenizer == m.tokenizer && again.n_targets == m.n_targets);
    qr_data_index_release(&m);
    qr_data_index_release(&again);
    qr_buf_release(&text);
}

static void try_shard(const uint8_t *data, size_t size)
{
    struct qr_shard s;
    struct qr_err err = {0};
    const int rc = qr_shard_parse(&s, data, size, "fuzz", &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return;
    }
    int64_t n_targets = 0;
    QR_ASSERT(qr_shard_offset(&s, 0) == 0 && qr_shard_offset(&s, s.n_docs) == s.n_tokens);
    for (int64_t d = 0; d < s.n_docs; d++) {
        const int64_t begin = qr_shard_offset(&s, d), end = qr_shard_offset(&s, d + 1);
        QR_ASSERT(begin < end && end <= s.n_tokens);
        for (int64_t t = begin; t < end; t++) {
            const int32_t id = qr_shard_id(&s, t);
            QR_ASSERT(id >= 0 && id < s.vocab_size);
            n_targets += t > begin && qr_shard_counts(&s, t);
        }
    }
    QR_ASSERT(n_targets == s.n_targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == '{')
        try_index(data, size);
    else
        try_shard(data, size);
    return 0;
}
