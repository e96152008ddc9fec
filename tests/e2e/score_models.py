"""Tiny random models that score pairs of texts, made on the spot: for tests, and for tools/golden/scores.py, which has transformers score the same pairs."""
import array
import json
import os
import random

from test_quantized_files import write_tensors

WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 64, 96, 2, 4, 2
MERGES = [('y', 'e'), ('ye', 's'), ('n', 'o'), ('t', 'h'), ('th', 'e'), ('\u0120', 'a')]
SPECIAL = ['<|bos|>', '<|eos|>', '<|im_start|>', '<|im_end|>', '<think>', '</think>']
PAIRS = [('What do cats do?', 'Cats sleep most of the day.'), ('What do cats do?', 'yes'), ('a', ' the na\u00efve caf\u00e9\n'), ('Who?', 'no ' * 40)]
INSTRUCTION = 'Find what cats do'  # of the last pair, where the model takes one
VOCAB = 256 + len(MERGES) + len(SPECIAL)
COMMON = {'hidden_size': WIDTH, 'intermediate_size': INNER, 'num_hidden_layers': LAYERS, 'num_attention_heads': HEADS, 'num_key_value_heads': KV_HEADS,
          'vocab_size': VOCAB, 'max_position_embeddings': 1024, 'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'bos_token_id': VOCAB - 6,
          'eos_token_id': VOCAB - 5, 'tie_word_embeddings': True, 'torch_dtype': 'float32', 'id2label': {'0': 'LABEL_0'}, 'label2id': {'LABEL_0': 0}}
ASKED = {'classifier_from_token': ['no', 'yes'], 'is_original_qwen3_reranker': True}
BOS, EOS = ({'SpecialToken': {'id': SPECIAL[i], 'type_id': 0}} for i in range(2))
A, B = ({'Sequence': {'id': i, 'type_id': 0}} for i in 'AB')
# name: model_type, what config.json has beside, biases of q, k, v and norms of q and k, the template of two texts (None: there is none)
MODELS = {
    'LlamaForSequenceClassification': ('llama', {'head_dim': 16, 'pad_token_id': VOCAB - 5}, False, False, [BOS, A, BOS, B, EOS]),  # ends with what pads
    'Qwen2ForSequenceClassification': ('qwen2', {'sentence_transformers': {'activation_fn': 'torch.nn.modules.linear.Identity'}}, True, False, None),
    'Qwen3ForSequenceClassification': ('qwen3', {'head_dim': 16}, False, True, None),
    'Qwen3ForCausalLM': ('qwen3', {'head_dim': 16}, False, True, None),
}


def byte_alphabet():
    printable = set(range(0x21, 0x7f)) | set(range(0xa1, 0xad)) | set(range(0xae, 0x100))
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def tokenizer(pair):
    words = byte_alphabet() + [a + b for a, b in MERGES]
    ids = {s: len(words) + i for i, s in enumerate(SPECIAL)}
    level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    template = {'type': 'TemplateProcessing', 'single': [BOS, A], 'pair': pair,
                'special_tokens': {s: {'id': s, 'ids': [ids[s]], 'tokens': [s]} for s in SPECIAL[:2]}}
    return {'version': '1.0', 'truncation': None, 'padding': None, 'normalizer': None, 'pre_tokenizer': level, 'decoder': level,
            'added_tokens': [{'id': i, 'content': s, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': True}
                             for s, i in ids.items()],
            'post_processor': template if pair else level,
            'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None, 'end_of_word_suffix': None, 'fuse_unk': False,
                      'byte_fallback': False, 'ignore_merges': False, 'vocab': {w: i for i, w in enumerate(words)}, 'merges': [list(m) for m in MERGES]}}


def shapes(classifier, biases, norms):
    q, kv = (HEADS * 16, KV_HEADS * 16)
    yield 'model.embed_tokens.weight', [VOCAB, WIDTH]
    for i in range(LAYERS):
        p = f'model.layers.{i}.'
        for name, n_out, n_in in (('q', q, WIDTH), ('k', kv, WIDTH), ('v', kv, WIDTH), ('o', WIDTH, q)):
            yield f'{p}self_attn.{name}_proj.weight', [n_out, n_in]
            if biases and name != 'o':
                yield f'{p}self_attn.{name}_proj.bias', [n_out]
            if norms and name in 'qk':
                yield f'{p}self_attn.{name}_norm.weight', [16]
        for name, n_out, n_in in (('gate', INNER, WIDTH), ('up', INNER, WIDTH), ('down', WIDTH, INNER)):
            yield f'{p}mlp.{name}_proj.weight', [n_out, n_in]
        for name in ('input_layernorm', 'post_attention_layernorm'):
            yield f'{p}{name}.weight', [WIDTH]
    yield 'model.norm.weight', [WIDTH]
    if classifier:
        yield 'score.weight', [classifier, WIDTH]


def make(where, name, labels=1, **more):
    """A directory with the model's files. labels: of a classifier."""
    model_type, own, biases, norms, pair = MODELS[name]
    classifier = labels if 'Classification' in name else 0
    tensors = {}
    for tensor, shape in shapes(classifier, biases, norms):
        r, around = random.Random(tensor), 1.0 if 'norm' in tensor else 0.0
        values = array.array('f', [around + (r.random() - 0.5) * 0.4 for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))])
        tensors[tensor] = ('F32', shape, values.tobytes())
    os.makedirs(where, exist_ok=True)
    write_tensors(os.path.join(where, 'model.safetensors'), tensors)
    files = {'config.json': {'architectures': [name], 'model_type': model_type, **COMMON, **own, **more}, 'tokenizer.json': tokenizer(pair),
             'tokenizer_config.json': {'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': SPECIAL[0], 'eos_token': SPECIAL[1], 'pad_token': SPECIAL[1]}}
    for file, content in files.items():
        with open(os.path.join(where, file), 'w', encoding='utf-8') as f:
            json.dump(content, f)
