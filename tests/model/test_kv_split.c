/* Which block a layer's keys and values are in, for the shapes of models that mix layers with a window and without. */
#include <criterion/criterion.h>

#include "model/kv_split.h"

Test(kv_split, every_layer_has_a_place_of_its_own_and_those_without_a_window_are_in_the_block_that_is_kept)
{
    static const struct {
        const char *like;
        int32_t n_layers, every, n_twins, n_in_block; /* each so manieth layer has no window */
    } cases[] = {{"gemma 3 1b", 26, 6, 6, 4},   {"gemma 3 4b", 34, 6, 6, 5}, {"gemma 3 12b", 48, 6, 5, 8}, {"gemma 3 27b", 62, 6, 5, 11},
                 {"gpt-oss 20b", 24, 2, 1, 12}, {"gemma 2 2b", 26, 2, 1, 13}, {"olmo 3 7b", 32, 4, 3, 8},   {"every layer has one", 32, 33, 0, 32},
                 {"none has", 32, 1, 0, 32},    {"one has none", 64, 64, 15, 4}, {"three layers", 3, 2, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qr_model_config c = {.n_layers = cases[i].n_layers, .window = 1024};
        struct qr_kv_split s;
        bool taken[1 + QR_TWINS_MAX][64] = {{false}};
        qr_layers_every(c.unwindowed, c.n_layers, cases[i].every);
        qr_kv_split_of(&s, &c);
        cr_expect(s.n_twins == cases[i].n_twins && s.n_layers == cases[i].n_in_block, "%s: %d twins, %d layers", cases[i].like, s.n_twins, s.n_layers);
        for (int32_t l = 0; l < c.n_layers; l++) {
            const int32_t part = s.of[l].part, at = s.of[l].layer;
            cr_assert(part >= 0 && part <= s.n_twins && at >= 0 && at < s.n_layers && !taken[part][at], "%s, layer %d", cases[i].like, l);
            cr_assert(part == 0 || qr_layer_window(&c, l) > 0, "%s, layer %d", cases[i].like, l);
            taken[part][at] = true;
        }
    }
}
