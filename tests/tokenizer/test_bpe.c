/* Merging against a naive oracle. */
#include "tok_test.h"

#include "base/rng.h"

/* ---- the oracle: strings, every pair looked at in every round ---- */

#define ALPHABET 3
#define WORD_MAX 24

struct rule {
    char left[WORD_MAX], right[WORD_MAX];
};

struct grammar {
    struct rule rule[200];
    int32_t n_rules;
    char word[300][WORD_MAX]; /* the vocabulary; the index is the id */
    int32_t n_words;
};

static int32_t word_id(const struct grammar *g, const char *s)
{
    for (int32_t i = 0; i < g->n_words; i++)
        if (strcmp(g->word[i], s) == 0)
            return i;
    return -1;
}

static int32_t rule_rank(const struct grammar *g, const char *left, const char *right)
{
    for (int32_t i = g->n_rules; i-- > 0;) /* a pair that comes twice takes its last rank */
        if (strcmp(g->rule[i].left, left) == 0 && strcmp(g->rule[i].right, right) == 0)
            return i;
    return INT32_MAX;
}

/* Random merges of words that exist; with `shuffled` their order has nothing to do with their lengths. */
static void make_grammar(struct grammar *g, struct qr_rng *rng, bool shuffled)
{
    *g = (struct grammar){0};
    for (int32_t c = 0; c < ALPHABET; c++)
        g->word[g->n_words++][0] = (char)('a' + c);
    int32_t n = 5 + (int32_t)qr_rng_below(rng, 120);
    for (int32_t i = 0; i < n; i++) {
        const char *left = g->word[qr_rng_below(rng, (uint32_t)g->n_words)], *right = g->word[qr_rng_below(rng, (uint32_t)g->n_words)];
        char both[2 * WORD_MAX];
        snprintf(both, sizeof both, "%s%s", left, right);
        if (strlen(both) >= WORD_MAX)
            continue;
        struct rule *r = &g->rule[g->n_rules++];
        strcpy(r->left, left);
        strcpy(r->right, right);
        if (word_id(g, both) < 0)
            strcpy(g->word[g->n_words++], both);
    }
    for (int32_t i = g->n_rules; shuffled && i > 1; i--) {
        int32_t j = (int32_t)qr_rng_below(rng, (uint32_t)i);
        struct rule swap = g->rule[i - 1];
        g->rule[i - 1] = g->rule[j];
        g->rule[j] = swap;
    }
}

static struct qr_tokenizer *grammar_tokenizer(const struct grammar *g)
{
    struct qr_buf json = {0};
    struct qr_err err;
    struct qr_tokenizer *t = NULL;
    qr_buf_put_str(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int32_t i = 0; i < g->n_words; i++)
        qr_buf_printf(&json, "%s\"%s\":%d", i ? "," : "", g->word[i], i);
    qr_buf_put_str(&json, "},\"merges\":[");
    for (int32_t i = 0; i < g->n_rules; i++)
        qr_buf_printf(&json, i & 1 ? "%s[\"%s\",\"%s\"]" : "%s\"%s %s\"", i ? "," : "", g->rule[i].left, g->rule[i].right);
    qr_buf_put_str(&json, "]}}");
    int rc = qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    qr_buf_release(&json);
    return t;
}

static void naive_encode(const struct grammar *g, struct qr_ids *out, const char *text, int32_t n)
{
    char (*sym)[WORD_MAX] = calloc((size_t)n + 1, WORD_MAX);
    for (int32_t i = 0; i < n; i++)
        sym[i][0] = text[i];
    for (;;) {
        int32_t best = INT32_MAX, at = -1;
        for (int32_t i = 0; i + 1 < n; i++) {
            int32_t rank = rule_rank(g, sym[i], sym[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (at < 0)
            break;
        size_t n_left = strlen(sym[at]), n_right = strlen(sym[at + 1]);
        cr_assert(n_left + n_right < WORD_MAX);
        memcpy(sym[at] + n_left, sym[at + 1], n_right);
        memmove(sym[at + 1], sym[at + 2], (size_t)(n - at - 1) * WORD_MAX); /* with the zeroed end */
        n--;
    }
    out->n = 0;
    for (int32_t i = 0; i < n; i++)
        qr_ids_push(out, word_id(g, sym[i]));
    free(sym);
}

#if defined(__SANITIZE_ADDRESS__) /* the naive one takes its time */
enum { N_GRAMMARS = 15 };
#else
enum { N_GRAMMARS = 60 };
#endif

static void compare_with_oracle(bool shuffled, uint64_t seed)
{
    struct qr_rng rng = {.seed = seed};
    struct grammar *g = malloc(sizeof *g);
    struct qr_ids want = {0}, got = {0};
    fprintf(stderr, "bpe oracle: seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < N_GRAMMARS; round++) {
        make_grammar(g, &rng, shuffled);
        struct qr_tokenizer *t = grammar_tokenizer(g);
        for (int i = 0; i < 20; i++) {
            char text[400];
            int32_t n = (int32_t)qr_rng_below(&rng, i < 10 ? 60 : 400), letters = 1 + (int32_t)qr_rng_below(&rng, ALPHABET);
            for (int32_t k = 0; k < n; k++)
                text[k] = (char)('a' + qr_rng_below(&rng, (uint32_t)letters));
            naive_encode(g, &want, text, n);
            tok_encode(t, &got, text, (size_t)n, 0);
            cr_assert(tok_same(&got, &want), "round %d: \"%.*s\" gives %s, expected %s", round, n, text, tok_show(&got),
                      tok_show(&want));
        }
        qr_tokenizer_close(t);
    }
    qr_ids_release(&want);
    qr_ids_release(&got);
    free(g);
}

Test(bpe, equals_a_naive_merger_on_random_grammars, .timeout = 120)
{
    compare_with_oracle(false, 20240801);
}

Test(bpe, equals_a_naive_merger_when_later_merges_have_lower_ranks, .timeout = 120)
{
    compare_with_oracle(true, 20240802);
}

Test(bpe, text_of_no_merges_and_of_one_symbol_stays_as_it_is)
{
    struct grammar g = {.n_words = 1};
    g.word[0][0] = 'a';
    struct qr_tokenizer *t = grammar_tokenizer(&g);
    struct qr_ids ids = {0};
    tok_encode(t, &ids, "", 0, 0);
    cr_expect(ids.n == 0);
    tok_encode(t, &ids, "aab", 3, 0);
    cr_expect(ids.n == 2, "an unknown character without unk_token vanishes, as in the reference");
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
}
