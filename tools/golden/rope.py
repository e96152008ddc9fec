#!/usr/bin/env python3
"""Rotary frequencies of long contexts as transformers computes them, in float64, of published shapes; longrope's factors are made up.

    python3 -m venv V && V/bin/pip install transformers numpy && V/bin/python tools/golden/rope.py > tests/model/golden_rope.h

torch is not needed: the functions of modeling_rope_utils get numpy in its place, whose types are all float64 here.
"""
import json
import math
import textwrap
import types

import numpy
import transformers
from transformers import modeling_rope_utils as rope


class Array(numpy.ndarray):
    def float(self):
        return self

    def to(self, **_):
        return self


def array(values):
    return numpy.asarray(values, dtype=numpy.float64).view(Array)


rope.torch = types.SimpleNamespace(arange=lambda *a, **_: array(numpy.arange(*a)), tensor=lambda x, **_: array(x), int64=0, float32=0, float=0, pi=math.pi,
                                   clamp=lambda x, low, high: array(numpy.clip(x, low, high)), where=numpy.where)

SHORT = [1 + 0.03125 * i for i in range(48)]
LONG = [1 + 0.0625 * i * i for i in range(48)]
YARN = {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 32768}
PHI = {'rope_type': 'longrope', 'original_max_position_embeddings': 4096, 'short_factor': SHORT, 'long_factor': LONG}
CASES = [  # name, numbers of a head, base, context of the file, what its scaling is, contexts it is opened with
    ('Llama 3.2', 64, 500000.0, 131072, {'rope_type': 'llama3', 'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
                                         'original_max_position_embeddings': 8192}, [131072]),
    ('Qwen 3 with YaRN', 128, 1000000.0, 40960, YARN, [131072]),
    ('gpt-oss', 64, 150000.0, 131072, {'rope_type': 'yarn', 'factor': 32.0, 'beta_fast': 32.0, 'beta_slow': 1.0, 'truncate': False,
                                       'original_max_position_embeddings': 4096}, [131072]),
    ('Phi-3.5', 96, 10000.0, 131072, PHI, [4096, 4097, 131072]),
]


def main():
    print(f'/* Made by tools/golden/rope.py with transformers {transformers.__version__}; see there. */')
    print('static const struct golden_rope {\n    const char *name, *config;\n    int32_t opened;\n    double factor;\n    int32_t at[5];\n    double freq[5];\n'
          '} golden_ropes[] = {')
    for name, head_dim, theta, ctx, scaling, opened in CASES:
        config = types.SimpleNamespace(rope_parameters={'rope_theta': theta, **scaling}, head_dim=head_dim, hidden_size=head_dim, num_attention_heads=1,
                                       max_position_embeddings=ctx, standardize_rope_params=lambda: None)
        for n in opened:
            freq, factor = rope.ROPE_INIT_FUNCTIONS[scaling['rope_type']](config, None, seq_len=n)
            at = [0, len(freq) // 3, len(freq) // 2, len(freq) * 3 // 4, len(freq) - 1]
            text = json.dumps(json.dumps({'head_dim': head_dim, 'rope_theta': theta, 'max_position_embeddings': ctx, 'rope_scaling': scaling}))
            lines = textwrap.wrap(text[1:-1], 120, break_long_words=False, break_on_hyphens=False, drop_whitespace=False)
            print('    {' + json.dumps(name) + ',\n' + '\n'.join(f'     "{line}"' for line in lines) + ',')
            print(f'     {n}, {factor:.13g}, {{{", ".join(str(i) for i in at)}}}, {{{", ".join(f"{freq[i]:.13g}" for i in at)}}}}},')
    print('};')


if __name__ == '__main__':
    main()
