/* gguf_tokens.h - the tokenizer that a GGUF file carries, told as the files that Hugging Face's tools write for the same one: tokenizer.json and
 * tokenizer_config.json. What reads those reads GGUF then, and nothing of encoding is there twice.
 *
 * tokenizer.ggml.model "gpt2" is byte-level BPE: tokens, merges, and the name of a split pattern (tokenizer.ggml.pre). "llama" is SentencePiece's BPE: tokens
 * with scores, from which the merges follow: two pieces that are tokens join to a token, the best score first. Others (WordPiece, Unigram, RWKV) are refused
 * by name.
 * Source: the names and patterns of llama.cpp's vocabulary loader as facts; tested against its own vectors (conformance data, gguf-vocab).
 */
#ifndef QR_TOKENIZER_GGUF_TOKENS_H
#define QR_TOKENIZER_GGUF_TOKENS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/files/gguf.h"

/* Appends the text of tokenizer.json. Errors name the key: QR_E_DAMAGED, QR_E_UNSUPPORTED (a tokenizer or pattern that is not known), QR_E_NOT_FOUND (the
 * file has no vocabulary). */
int qr_gguf_tokenizer_json(struct qr_buf *out, const struct qr_gguf *g, struct qr_err *err);

/* Appends the text of tokenizer_config.json: the special tokens' names, and the chat template where there is one. */
int qr_gguf_tokenizer_config(struct qr_buf *out, const struct qr_gguf *g, struct qr_err *err);

#endif
