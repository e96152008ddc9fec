#!/usr/bin/env python3
"""Logits and greedy ids of tiny random models of every family, by transformers in double precision: an implementation that shares nothing with this program.

Writes tests/model/golden_families.h and, of the later families, golden_families_2.h. Needs PyTorch and transformers (5.23 and 2.15 were used), in an environment of its own:
    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers numpy
    /tmp/golden/bin/python tools/golden/families.py tests/model
A model is its configuration, as transformers writes it, and weights that follow from their names, so that the test makes the same model on the spot:
number i of a tensor is (s(hash(name) + i) / 2^24 - 1/2) * width around 0, of norms around 1 (Gemma's, which multiply by 1 + w, around 0), where s is the
upper 24 bits of splitmix64.
"""
import json
import os
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

IDS, SHOWN, STEP, GREEDY = 40, 11, 8, 8
FIRST_FILE = 20 # families
NO_OWN = ("GPT2LMHeadModel",) # fields of Llama's that are none of theirs
COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=96,
              max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=None)
MASK = (1 << 64) - 1

NOT_OF_THE_MODEL = ("id2label", "label2id", "transformers_version", "_name_or_path", "chunk_size_feed_forward", "output_attentions", "output_hidden_states",
                    "return_dict", "problem_type", "is_encoder_decoder", "initializer_range", "attention_dropout", "use_cache", "pretraining_tp")
FAMILIES = [
    ("llama", "LlamaForCausalLM", dict(tie_word_embeddings=False)),
    ("llama with biases, a tied head and heads of 32", "LlamaForCausalLM", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=32)),
    ("llama with Llama 3's scaling", "LlamaForCausalLM", dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
    ("llama with linear scaling", "LlamaForCausalLM", dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    ("llama with yarn", "LlamaForCausalLM", dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32))),
    ("mistral with a window of 8", "MistralForCausalLM", dict(sliding_window=8, head_dim=16)),
    ("qwen2", "Qwen2ForCausalLM", dict(tie_word_embeddings=True)),
    ("qwen2 with a window in its last layer", "Qwen2ForCausalLM", dict(use_sliding_window=True, sliding_window=6, max_window_layers=2)),
    ("qwen3", "Qwen3ForCausalLM", dict(head_dim=32, tie_word_embeddings=True)),
    ("phi3 with a window", "Phi3ForCausalLM", dict(sliding_window=9, num_key_value_heads=4)),
    ("phi3 with longrope beyond its trained context, three quarters of heads rotating", "Phi3ForCausalLM", dict(
        max_position_embeddings=256, original_max_position_embeddings=32, partial_rotary_factor=0.75, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, original_max_position_embeddings=32,
            short_factor=[1.0 + 0.05 * i for i in range(6)], long_factor=[1.5 + 2.0 * i for i in range(6)]))),
    ("smollm3: a layer without positions", "SmolLM3ForCausalLM", dict(no_rope_layers=[1, 0, 1], tie_word_embeddings=True)),
    ("qwen3 with biases", "Qwen3ForCausalLM", dict(head_dim=16, attention_bias=True)),
    ("granite with its four multipliers", "GraniteForCausalLM", dict(
        embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.11, logits_scaling=3.0, attention_bias=True, tie_word_embeddings=True)),
    ("gemma", "GemmaForCausalLM", dict(hidden_size=80, head_dim=24, num_key_value_heads=1)),
    ("qwen3 with a window in every other layer", "Qwen3ForCausalLM", dict(head_dim=16, use_sliding_window=True, sliding_window=6, max_window_layers=0, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])),
    ("mixtral with a window", "MixtralForCausalLM", dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=9)),
    ("qwen2-moe: a plain layer by step and one by name, a shared expert, weights that do not add up to 1", "Qwen2MoeForCausalLM", dict(
        num_hidden_layers=5, decoder_sparse_step=2, mlp_only_layers=[3], num_experts=5, num_experts_per_tok=3, moe_intermediate_size=24,
        shared_expert_intermediate_size=40, norm_topk_prob=False, use_sliding_window=True, sliding_window=7, max_window_layers=3)),
    ("qwen3-moe with heads of their own size and weights that add up to 1", "Qwen3MoeForCausalLM", dict(
        num_experts=7, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True, head_dim=24, mlp_only_layers=[2])),
    ("gemma2 with caps that bend, a window in every other layer", "Gemma2ForCausalLM", dict(
        hidden_size=80, head_dim=24, sliding_window=7, query_pre_attn_scalar=20, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    ("gemma3: two rotary embeddings, one scaled; norms of heads; an untied head", "Gemma3ForCausalLM", dict(
        hidden_size=80, head_dim=24, sliding_window=6, query_pre_attn_scalar=30, tie_word_embeddings=False, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=100.0), full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=8.0)))),
    ("gemma3 with a cap of its logits and biases", "Gemma3ForCausalLM", dict(
        head_dim=16, sliding_window=5, query_pre_attn_scalar=16, final_logit_softcapping=4.0, attention_bias=True)),
    ("gpt2", "GPT2LMHeadModel", dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, n_inner=100)),
    ("gpt2 with a head of its own, four times as wide inside", "GPT2LMHeadModel", dict(
        n_embd=48, n_layer=2, n_head=3, n_positions=48, tie_word_embeddings=False)),
    ("stablelm: a quarter of heads rotates", "StableLmForCausalLM", dict(head_dim=None, use_qkv_bias=True, hidden_size=128)),
    ("stablelm: half of heads rotates, no biases of q, k, v", "StableLmForCausalLM", dict(rope_parameters=dict(
        rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5), tie_word_embeddings=True)),
    ("smollm3 with a window where it has no positions", "SmolLM3ForCausalLM", dict(
        no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=6, attention_bias=True)),
    ("olmo2", "Olmo2ForCausalLM", dict()),
    ("olmo3: a window, rotation scaled where there is none", "Olmo3ForCausalLM", dict(
        num_hidden_layers=5, sliding_window=7, rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=500.0), full_attention=dict(
                rope_type="yarn", rope_theta=500.0, factor=8.0, original_max_position_embeddings=32)))),
    ("olmo3 with biases and a list of layers, nothing scaled", "Olmo3ForCausalLM", dict(
        sliding_window=5, attention_bias=True, tie_word_embeddings=True, layer_types=[
            "full_attention", "sliding_attention", "sliding_attention"])),
    ("seed-oss with biases of q, k, v alone", "SeedOssForCausalLM", dict(head_dim=24)),
    ("seed-oss with the other biases", "SeedOssForCausalLM", dict(
        head_dim=16, attention_bias=False, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True)),
]


def hash_of(name):
    h = 0xCBF29CE484222325  # FNV-1a
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


def splitmix(x):
    x = (x + numpy.uint64(0x9E3779B97F4A7C15)).astype(numpy.uint64)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def values(name, shape, norms_around):
    n = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        s = splitmix(numpy.uint64(hash_of(name)) + numpy.arange(n, dtype=numpy.uint64)) >> numpy.uint64(40)
    unit = s.astype(numpy.float64) / (1 << 24) - 0.5
    norm = "norm" in name or ".ln_" in name
    return ((norms_around if norm else 0.0) + unit * (0.5 if norm else 0.4)).astype(numpy.float32).reshape(shape)


def ids_of(k, vocab):
    return [(1 + 37 * i * (k + 1) + i * i) % vocab for i in range(IDS)]


def c_string(text):
    pieces = [text[i:i + 110] for i in range(0, len(text), 110)]
    return "\n     ".join('"' + p.replace("\\", "\\\\").replace('"', '\\"') + '"' for p in pieces)


def through_files(arch, config):
    """Experts lie in files one by one and in memory in stacks: a model whose weights came from files, and the names and shapes that these have."""
    with tempfile.TemporaryDirectory() as where:
        arch(config).save_pretrained(where)
        file = where + "/model.safetensors"
        state = {t: torch.from_numpy(values(t, tuple(x.shape), 1.0)) for t, x in safetensors.torch.load_file(file).items()}
        safetensors.torch.save_file(state, file, metadata={"format": "pt"})
        return arch.from_pretrained(where, config=config, dtype=torch.float32).double().eval(), state


def packed(pieces, between):
    """As many on a line as fit."""
    lines = [""]
    for p in pieces:
        if len(lines[-1]) + len(p) > 140:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + p + ","
    return ("\n" + between).join(lines)[:-1]


def greedy(model, ids):
    """What follows ids, the likeliest token each time."""
    for _ in range(GREEDY):
        ids = ids + [int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())]
    return ids[IDS:]


def golden(out, k, name, cls, more):
    arch = getattr(transformers, cls)
    common = {x: y for x, y in COMMON.items() if cls not in NO_OWN or x in ("vocab_size", "bos_token_id", "eos_token_id")}
    config = arch.config_class(**{**common, **more})
    config.architectures = [cls]
    config.dtype = torch.float32
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = arch(config).double().eval()
    state = model.state_dict()
    from_files = any(len(x.shape) > 2 for x in state.values())
    if from_files:
        model, state = through_files(arch, config)
    tied = config.tie_word_embeddings
    tensors = [t for t in state if not (tied and t == "lm_head.weight")]
    with torch.no_grad():
        for t in [] if from_files else tensors:
            state[t].copy_(torch.from_numpy(values(t, tuple(state[t].shape), 0.0 if cls.startswith("Gemma") else 1.0)).double())
        model.tie_weights()
        ids = ids_of(k, config.vocab_size)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].double()
        follows = greedy(model, ids)
    text = json.loads(config.to_json_string(use_diff=False))
    keep = {x: y for x, y in text.items() if y is not None and x not in NOT_OF_THE_MODEL}
    print("    {%s,\n     %s," % (c_string(name), c_string(json.dumps(keep))), file=out)
    print("     {" + packed(["{%s, {%s}}" % (c_string(t), ", ".join(map(str, state[t].shape))) for t in tensors], "      ") + "},", file=out)
    rows = [IDS // 2, IDS - 1]
    print("     {" + ",\n      ".join("{%.9g, {%s}}" % (float(torch.logsumexp(logits[r], 0)),
                                                      ", ".join("%.7g" % float(logits[r][i * STEP]) for i in range(SHOWN))) for r in rows) + "},", file=out)
    print("     {%s}}," % ", ".join(map(str, follows)), file=out)
    print(name, float(logits.std()), file=sys.stderr)


HEAD = """/* Made by tools/golden/families.py with transformers %s and PyTorch %s; see there. */
#define GOLDEN_IDS %d
#define GOLDEN_SHOWN %d
#define GOLDEN_STEP %d
#define GOLDEN_GREEDY %d
#define GOLDEN_TENSORS_MAX 128

static const struct golden_family {
    const char *name, *config;
    struct {
        const char *name;
        int64_t shape[2]; /* the second 0: a vector */
    } tensor[GOLDEN_TENSORS_MAX];
    struct {
        double lse, logit[GOLDEN_SHOWN]; /* logits 0, GOLDEN_STEP, ... */
    } row[2]; /* positions GOLDEN_IDS / 2 and GOLDEN_IDS - 1 */
    int32_t follows[GOLDEN_GREEDY]; /* greedily, behind all ids */
} golden[] = {"""


def main():
    made = (transformers.__version__, torch.__version__.split("+")[0])
    with open(os.path.join(sys.argv[1], "golden_families.h"), "w") as out:
        print(HEAD % (*made, IDS, SHOWN, STEP, GREEDY), file=out)
        for k, f in enumerate(FAMILIES[:FIRST_FILE]):
            golden(out, k, *f)
        print('#include "tests/model/golden_families_2.h"\n};', file=out)
    with open(os.path.join(sys.argv[1], "golden_families_2.h"), "w") as out:
        print("/* Made by tools/golden/families.py with transformers %s and PyTorch %s; see there. Further rows. */" % made, file=out)
        for k, f in enumerate(FAMILIES[FIRST_FILE:], FIRST_FILE):
            golden(out, k, *f)


if __name__ == "__main__":
    main()
