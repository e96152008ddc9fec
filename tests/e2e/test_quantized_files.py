#!/usr/bin/env python3
"""Checkpoints that are stored quantized answer with the bits of the same numbers stored in bf16: one matrix of the bundled model in every layout."""
import array
import bisect
import json
import os
import shutil
import struct
import tempfile

from lib import ROOT, levels, main, run

MODEL = os.path.join(ROOT, 'models', 'quire-tiny')
BASE = 'model.layers.1.mlp.down_proj'
O, I, GROUP = 256, 512, 64  # of that matrix
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def read_tensors(path):
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    header.pop('__metadata__', None)
    return {k: (v['dtype'], v['shape'], data[v['data_offsets'][0]:v['data_offsets'][1]]) for k, v in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)  # so that numbers are aligned
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(d for _, _, d in tensors.values()))


def bf16s(numbers):
    """Exact for numbers of 8 bits times a power of two."""
    words = array.array('I', array.array('f', numbers).tobytes())
    assert not any(w & 0xffff for w in words)
    return array.array('H', [w >> 16 for w in words]).tobytes()


def packed(codes, bits):
    """Lists of codes as little-endian words, the first in the low bits."""
    per = 32 // bits
    out = array.array('I', bytes(4 * (len(codes) // per)))
    for i in range(0, len(codes), per):
        word = 0
        for j in range(per):
            word |= codes[i + j] << (bits * j)
        out[i // per] = word
    return out.tobytes()


def transposed(codes, rows, cols):
    return [codes[r * cols + c] for c in range(cols) for r in range(rows)]


def awq_words(codes, rows, cols):
    return packed([codes[r * cols + c + k] for r in range(rows) for c in range(0, cols, 8) for k in AWQ_ORDER], 4)


def codes_of(weights, bits, symmetric):
    """Codes and the scale's exponent of each group (of a row with 8 bits); zeros differ from group to group, or are in the middle."""
    most, codes, exponents, zeros = (1 << bits) - 1, [0] * (O * I), [], []
    size = GROUP if bits == 4 else I
    for at in range(0, O * I, size):
        largest = max(abs(w) for w in weights[at:at + size])
        e = 0
        while largest < 2.0 ** (e + bits - 1):
            e -= 1
        zero = (1 << (bits - 1)) - (0 if symmetric else (at // size) % 3)
        for k in range(at, at + size):
            codes[k] = min(max(round(weights[k] * 2.0 ** -e) + zero, 0), most)
        exponents.append(e)
        zeros.append(zero)
    return codes, exponents, zeros


def f16s(values):
    return struct.pack(f'<{len(values)}e', *values)


def e4m3_of(byte):
    e, m = byte >> 3 & 15, byte & 7
    x = (8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9
    return -x if byte & 128 else x


def in_layout(layout, weights):
    """(quantization_config, parts, the numbers they stand for)."""
    if layout == 'fp8':
        known = sorted((e4m3_of(b), b) for b in range(127))
        levels = [x for x, _ in known]
        codes, numbers = bytearray(), []
        for w in weights:
            x, b = known[min(bisect.bisect(levels, abs(w) * 16), 126)]  # a scale of 2^-4
            codes.append(b | (128 if w < 0 else 0))
            numbers.append(-x * 0.0625 if w < 0 else x * 0.0625)
        scale = struct.pack('<4f', *[0.0625] * 4)
        return {'quant_method': 'fp8', 'weight_block_size': [128, 256]}, {'weight': ('F8_E4M3', [O, I], bytes(codes)), 'weight_scale_inv': ('F32', [2, 2], scale)}, numbers
    bits = 8 if layout.startswith('int8') else 4
    codes, exponents, zeros = codes_of(weights, bits, layout in ('int8', 'int8n', 'gptq_v2'))
    size, n_groups = I // (len(exponents) // O), len(exponents) // O
    order = [(i * 5 % I) // size for i in range(I)] if layout == 'gptq' else [i // size for i in range(I)]
    group = [o * n_groups + order[i] for o in range(O) for i in range(I)]
    numbers = [2.0 ** exponents[g] * (c - zeros[g]) for c, g in zip(codes, group)]
    scales = [2.0 ** e for e in exponents]
    if bits == 8:
        config = {'quant_method': 'compressed-tensors', 'format': 'int-quantized', 'config_groups': {'group_0': {'weights': {'num_bits': 4 if layout == 'int8n' else 8, 'type': 'int'}}}}
        zero = {'weight_zero_point': ('I8', [O, 1], bytes((z - 128) & 255 for z in zeros))} if layout == 'int8z' else {}
        return config, {'weight': ('I8', [O, I], bytes((c - 128) & 255 for c in codes)), 'weight_scale': ('F16', [O, 1], f16s(scales)), **zero}, numbers
    if layout == 'packed':
        config = {'quant_method': 'compressed-tensors', 'format': 'pack-quantized', 'config_groups': {'group_0': {'weights': {
            'num_bits': 4, 'type': 'int', 'group_size': GROUP, 'symmetric': False}}}}
        return config, {'weight_packed': ('I32', [O, I // 8], packed(codes, 4)), 'weight_scale': ('F16', [O, n_groups], f16s(scales)),
                        'weight_zero_point': ('I32', [O // 8, n_groups], transposed_words(zeros, n_groups)), 'weight_shape': ('I64', [2], struct.pack('<2q', O, I))}, numbers
    by_group = transposed(list(range(O * n_groups)), O, n_groups)
    scale = ('F16', [n_groups, O], f16s([scales[k] for k in by_group]))
    if layout == 'awq':
        return {'quant_method': 'awq', 'bits': 4, 'group_size': GROUP}, {'qweight': ('I32', [I, O // 8], awq_words(transposed(codes, O, I), I, O)), 'scales': scale,
                'qzeros': ('I32', [n_groups, O // 8], awq_words([zeros[k] for k in by_group], n_groups, O))}, numbers
    columns = transposed(codes, O, I)
    words = packed([columns[(i + k) * O + o] for i in range(0, I, 8) for o in range(O) for k in range(8)], 4)
    less = [zeros[k] - (1 if layout == 'gptq' else 0) for k in by_group]
    config = {'quant_method': 'gptq', 'bits': 4, 'group_size': GROUP, 'desc_act': layout == 'gptq', **({} if layout == 'gptq' else {'checkpoint_format': 'gptq_v2'})}
    return config, {'qweight': ('I32', [I // 8, O], words), 'qzeros': ('I32', [n_groups, O // 8], packed(less, 4)), 'scales': scale,
                    'g_idx': ('I32', [I], struct.pack(f'<{I}i', *order))}, numbers


def transposed_words(zeros, n_groups):
    """Zeros [O, G] packed along the outputs."""
    return packed([zeros[(o + k) * n_groups + g] for o in range(0, O, 8) for g in range(n_groups) for k in range(8)], 4)


def make(path, config, tensors):
    shutil.copytree(MODEL, path, ignore=shutil.ignore_patterns('model.safetensors', 'config.json'))
    with open(os.path.join(MODEL, 'config.json'), encoding='utf-8') as f:
        settings = json.load(f)
    with open(os.path.join(path, 'config.json'), 'w', encoding='utf-8') as f:
        json.dump({**settings, **({'quantization_config': config} if config else {})}, f)
    write_tensors(os.path.join(path, 'model.safetensors'), tensors)


def scores(path, *settings):
    rc, out, err = run('score', '--model', path, '--logits', *settings, stdin=json.dumps({'prompt': 'What is 12 + 30? Tell me a story about a fox, please.'}) + '\n')
    assert rc == 0 and not err, err
    return out


def near(told, want):
    """Logits within 2^-6 of the largest, where products add up the same numbers in another order or round x otherwise. That may be the same text as well: one
    matrix's last bits seldom outlast what is rounded to bf16 behind it."""
    (a, b) = (json.loads(x)['logits'] for x in (told, want))
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 2.0 ** -6 * max(abs(y) for y in b)


def has_bits_as_coded(layout, level):
    """Whether codes are multiplied as the bf16 numbers that they stand for, in their order (docs/kernels.md, Coded weights)."""
    if layout in ('int8z', 'fp8'):  # the first is kept as bf16, and E4M3 numbers are multiplied by integers nowhere
        return True
    return layout != 'gptq' and level not in ('avx2', 'avx512')  # gptq's inputs are sorted by groups; these two levels multiply by integers


def test_a_quantized_checkpoint_scores_with_the_bits_of_its_numbers_in_bf16_on_every_level():
    tensors = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    words = array.array('H', tensors[f'{BASE}.weight'][2])
    weights = array.array('f', array.array('I', [w << 16 for w in words]).tobytes())
    others = {k: v for k, v in tensors.items() if k != f'{BASE}.weight'}
    here = levels()
    seen = {level: set() for level in here}
    with tempfile.TemporaryDirectory() as d:
        for layout in ('gptq', 'gptq_v2', 'awq', 'packed', 'int8', 'int8n', 'int8z', 'fp8'):
            config, parts, numbers = in_layout(layout, weights)
            make(f'{d}/{layout}', config, {**others, **{f'{BASE}.{k}': v for k, v in parts.items()}})
            make(f'{d}/{layout}-bf16', None, {**others, f'{BASE}.weight': ('BF16', [O, I], bf16s(numbers))})
            for level in here:
                told, want = (scores(f'{d}/{name}', '--isa', level) for name in (layout, f'{layout}-bf16'))
                assert near(told, want), (layout, level)
                assert (told if has_bits_as_coded(layout, level) else scores(f'{d}/{layout}', '--isa', level, '--dtype', 'bf16')) == want, (layout, level)
                seen[level].add(told)
            rc, out, err = run('check', f'{d}/{layout}')
            assert rc == 0 and '3345152 parameters' in out and 'unused' not in out and f'stored as     {config["quant_method"]}' in out, (out, err)
            assert ('as coded' in out) == (layout != 'int8z'), out  # as the file has them, or as bf16
    # awq and packed hold the same numbers, int8 and int8n (said to be of 4 bits) as well; the others their own, gptq_v2 with zeros in the middle
    assert {len(texts) for texts in seen.values()} == {6}, seen


def test_what_older_tools_write_otherwise_is_the_same_model():
    tensors = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    del tensors[f'{BASE}.weight']
    zeros = {f'model.layers.{i}.{name}.bias': ('F16', [n], bytes(2 * n)) for i in (0, 1) for name, n in (('mlp.down_proj', O), ('mlp.up_proj', I), ('self_attn.o_proj', O))}
    with tempfile.TemporaryDirectory() as d:
        for layout, file in (('gptq', 'quantize_config.json'), ('awq', 'quant_config.json')):
            config, parts, _ = in_layout(layout, [(i % 13 - 6) / 64 for i in range(O * I)])
            parts = {f'{BASE}.{k}': v for k, v in parts.items()}
            make(f'{d}/{layout}', config, {**tensors, **parts})
            told = scores(f'{d}/{layout}')
            make(f'{d}/{layout}-zeros', config, {**tensors, **zeros, **parts})  # AutoGPTQ's biases of models that have none
            assert scores(f'{d}/{layout}-zeros') == told
            make(f'{d}/{layout}-beside', None, {**tensors, **parts})
            with open(f'{d}/{layout}-beside/{file}', 'w', encoding='utf-8') as f:
                json.dump({k: v for k, v in config.items() if k != 'quant_method'}, f)
            assert scores(f'{d}/{layout}-beside') == told
            with open(f'{d}/{layout}-beside/{file}', 'w', encoding='utf-8') as f:
                f.write('{"bits": 3, "w_bit": 3}')
            rc, out, err = run('check', f'{d}/{layout}-beside')
            assert rc == 4 and f'{layout}-beside/{file}: ' in out and 'bits is 3; expected 4' in out.replace('w_bit', 'bits'), out
            os.unlink(f'{d}/{layout}-beside/{file}')
            os.mkdir(f'{d}/{layout}-beside/{file}')
            rc, _, err = run('score', '--model', f'{d}/{layout}-beside')
            assert rc == 4 and err.count(d) == 1 and f'{file}: is a directory' in err, err
        for text in ('{"per_channel": true, "reduce_range": true, "per_model_config": {"model": {"op_types": ["MatMul"], "weight_type": "QInt8"}}}', '{"bits": null}'):
            with open(f'{d}/gptq/quantize_config.json', 'w', encoding='utf-8') as f:  # not read: config.json says it
                f.write(text)
            shutil.rmtree(f'{d}/plain', ignore_errors=True)
            shutil.copytree(MODEL, f'{d}/plain')
            shutil.copy(f'{d}/gptq/quantize_config.json', f'{d}/plain')  # transformers.js writes such a file of what it made of the model
            assert scores(f'{d}/plain') == scores(MODEL)
        name, (kind, shape, data) = next(iter(zeros.items()))
        make(f'{d}/one', config, {**tensors, **zeros, **parts, name: (kind, shape, data[:-2] + b'\0\x3c')})
        rc, _, err = run('score', '--model', f'{d}/one')
        assert rc == 4 and f'the weights hold {name}, but' in err, err


def test_groups_of_modules_that_say_no_width_leave_it_to_the_matrices():
    tensors = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    others = {k: v for k, v in tensors.items() if k != f'{BASE}.weight'}
    attention = {'targets': ['re:.*self_attn'], 'weights': None, 'input_activations': {'num_bits': 8, 'type': 'float'}}
    with tempfile.TemporaryDirectory() as d:
        for layout, other_bits in (('packed', 8), ('fp8', 4)):
            config, parts, _ = in_layout(layout, [(i % 13 - 6) / 64 for i in range(O * I)])
            if layout == 'fp8':
                config = {'quant_method': 'compressed-tensors', 'format': 'float-quantized', 'config_groups': {'a': {'weights': {'num_bits': 8, 'type': 'float'}}}}
                parts = {'weight': parts['weight'], 'weight_scale': ('F32', [1], struct.pack('<f', 0.5))}
            told = []
            for i, groups in enumerate((config['config_groups'], {}, {'a': attention}, {'a': attention, 'b': {'weights': {'num_bits': other_bits, 'type': 'int'}}})):
                make(f'{d}/{layout}{i}', {**config, 'config_groups': groups}, {**others, **{f'{BASE}.{k}': v for k, v in parts.items()}})
                told.append((scores(f'{d}/{layout}{i}'), scores(f'{d}/{layout}{i}', '--dtype', 'f32')))
            assert len(set(told)) == 1, layout


def test_scales_of_activations_that_are_not_rounded_here_alarm_nobody():
    tensors = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    one = ('F32', [1], struct.pack('<f', 0.5))
    static = {f'{BASE}.input_scale': one, 'model.layers.0.self_attn.k_scale': one, 'model.layers.0.self_attn.v_scale': one}
    with tempfile.TemporaryDirectory() as d:
        config, parts, _ = in_layout('fp8', [(i % 13 - 6) / 64 for i in range(O * I)])
        make(f'{d}/fp8', config, {**{k: v for k, v in tensors.items() if k != f'{BASE}.weight'}, **{f'{BASE}.{k}': v for k, v in parts.items()}, **static})
        assert scores(f'{d}/fp8')
        rc, out, err = run('check', f'{d}/fp8')
        assert rc == 0 and 'unused' not in out, (out, err)
        make(f'{d}/plain', None, {**tensors, **static})  # where they may mean something else
        rc, out, err = run('check', f'{d}/plain')
        assert rc == 0 and 'unused        3 tensors' in out, (out, err)


def test_a_part_that_is_missing_is_named_by_check_and_by_whatever_loads_the_model():
    tensors = read_tensors(os.path.join(MODEL, 'model.safetensors'))
    config, parts, _ = in_layout('gptq', [0.5] * (O * I))
    del parts['scales'], tensors[f'{BASE}.weight']
    with tempfile.TemporaryDirectory() as d:
        make(f'{d}/m', config, {**tensors, **{f'{BASE}.{k}': v for k, v in parts.items()}})
        for args in (['check', f'{d}/m'], ['plan', '--model', f'{d}/m'], ['score', '--model', f'{d}/m'], ['quantize', f'{d}/m', f'{d}/q', '--type', 'int8']):
            rc, out, err = run(*args)
            assert 0 < rc < 10 and (f'{BASE}.scales is missing' in out + err or args[0] == 'quantize' and 'quantized' in err), (args, rc, out, err)


def test_what_cannot_be_read_is_refused_with_what_can():
    with tempfile.TemporaryDirectory() as d:
        make(f'{d}/m', {'quant_method': 'bitsandbytes', 'load_in_4bit': True}, read_tensors(os.path.join(MODEL, 'model.safetensors')))
        rc, _, err = run('score', '--model', f'{d}/m')
        assert rc != 0 and 'bitsandbytes' in err and 'expected GPTQ, AWQ, compressed-tensors' in err and err.count('\n') == 1, err


if __name__ == '__main__':
    main(globals())
