#!/usr/bin/env python3
"""Random configurations of every family against the transformers library.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers
    /tmp/peers/bin/python tools/check_families.py --quire build/quire --seed 1 --models 60

An optional check: nothing builds or tests with it. The goldens (tools/golden/families.py) are some configurations of each family, chosen by hand; this draws others: sizes, heads, biases,
windows, kinds of rotation, experts, scalers. Each becomes a tiny model of random weights, as transformers saves it, and the logits behind the last of up to 64 random ids, `quire score --logits`
in f32, are compared with transformers' in double. Refusals are printed, and no failure: what is refused is not computed wrongly. Ends with status 1 when a model's logits differ by more than
BOUND of the largest; such a model's directory is kept and named.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

from checks import random_model

# f32 against double through a few layers of some hundred products leaves a few 1e-6 of the largest logit; caps and scalers of 12 multiply that. What is computed wrongly differs by 1e-2 and more.
BOUND = 2e-4
HEADS = (8, 16, 24, 32, 40, 64)


def rotation(r):
    kind = r.choice(("default", "default", "linear", "llama3", "yarn", "dynamic"))
    d = {"rope_type": kind, "rope_theta": r.choice((100.0, 10000.0, 500000.0, 1e6))}
    if kind == "linear" or kind == "dynamic":
        d["factor"] = r.choice((2.0, 4.0))
    elif kind == "llama3":
        d.update(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    elif kind == "yarn":
        d.update(factor=r.choice((2.0, 4.0, 8.0)), original_max_position_embeddings=r.choice((32, 64)), beta_fast=r.choice((16.0, 32.0)), beta_slow=r.choice((1.0, 2.0)))
        d.update(r.choice(({}, {"attention_factor": 1.1}, {"mscale": 1.0, "mscale_all_dim": 0.7}, {"truncate": False})))
    return d


def sizes(r, own_heads):
    """Of any family with Llama's names; heads of their own size, or the width's share."""
    n_heads = r.choice((2, 3, 4, 6, 8))
    c = {"hidden_size": r.choice((32, 48, 64, 96)), "intermediate_size": r.choice((48, 64, 100, 172)), "num_hidden_layers": r.choice((1, 2, 3, 4)), "num_attention_heads": n_heads,
         "num_key_value_heads": r.choice([g for g in range(1, n_heads + 1) if n_heads % g == 0]), "vocab_size": r.choice((96, 100, 131)), "max_position_embeddings": r.choice((64, 128, 256)),
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": r.random() < 0.5, "rms_norm_eps": r.choice((1e-3, 1e-5, 1e-6))}
    if own_heads:
        c["head_dim"] = r.choice(HEADS)
    else:
        c["hidden_size"] = n_heads * r.choice((8, 16, 24, 32))
    return c


def maybe(r, share=0.4):
    return r.random() < share


def experts(r):
    return {"num_experts": r.choice((3, 5, 8)), "num_experts_per_tok": r.choice((1, 2, 3)), "moe_intermediate_size": r.choice((24, 32)), "norm_topk_prob": maybe(r), "decoder_sparse_step": r.choice((1, 2)),
            "mlp_only_layers": r.choice(([], [0]))}


def window_of_layers(r, c):
    return {"layer_types": [r.choice(("sliding_attention", "full_attention")) for _ in range(c["num_hidden_layers"])], "sliding_window": r.choice((5, 8))}


def llama(r):
    return "LlamaForCausalLM", {**sizes(r, maybe(r)), "attention_bias": maybe(r), "mlp_bias": maybe(r), "rope_parameters": rotation(r)}


def mistral(r):
    return "MistralForCausalLM", {**sizes(r, True), "sliding_window": r.choice((None, 5, 9, 16)), "rope_parameters": rotation(r)}


def qwen2(r):
    return "Qwen2ForCausalLM", {**sizes(r, False), "use_sliding_window": maybe(r), "sliding_window": r.choice((5, 8)), "max_window_layers": r.choice((0, 1, 2)), "rope_parameters": rotation(r)}


def qwen3(r):
    return "Qwen3ForCausalLM", {**sizes(r, True), "use_sliding_window": maybe(r), "sliding_window": 6, "max_window_layers": 1, "attention_bias": maybe(r), "rope_parameters": rotation(r)}


def phi3(r):
    """Longrope is left to the golden: it depends on the context that is served, not on a prompt's length as in transformers."""
    return "Phi3ForCausalLM", {**sizes(r, False), "sliding_window": r.choice((None, 7, 12))}


def smollm3(r):
    c = sizes(r, False)
    c.update({"no_rope_layers": [r.choice((0, 1)) for _ in range(c["num_hidden_layers"])]} if maybe(r) else {"no_rope_layer_interval": r.choice((2, 3, 4))})
    return "SmolLM3ForCausalLM", {**c, "attention_bias": maybe(r), "mlp_bias": maybe(r), "rope_parameters": rotation(r), **({"use_sliding_window": True, "sliding_window": 6} if maybe(r) else {})}


def granite(r):
    return "GraniteForCausalLM", {**sizes(r, False), "embedding_multiplier": r.choice((1.0, 12.0)), "residual_multiplier": r.choice((1.0, 0.22)), "attention_multiplier": r.choice((0.11, 0.25)),
                                  "logits_scaling": r.choice((1.0, 8.0)), "attention_bias": maybe(r), "mlp_bias": maybe(r), "rope_parameters": rotation(r)}


def gemma(r):
    return "GemmaForCausalLM", {**sizes(r, True), "rope_parameters": rotation(r)}


def gemma2(r):
    c = {**sizes(r, True), "query_pre_attn_scalar": r.choice((16, 20, 256)), "attn_logit_softcapping": r.choice((None, 2.0, 50.0)), "final_logit_softcapping": r.choice((None, 3.0, 30.0)),
         "attention_bias": maybe(r), "sliding_window": r.choice((5, 8))}
    return "Gemma2ForCausalLM", {**c, **(window_of_layers(r, c) if maybe(r) else {})}


def gemma3(r):
    c = {**sizes(r, True), "query_pre_attn_scalar": r.choice((16, 20, 256)), "final_logit_softcapping": r.choice((None, 3.0)), "attention_bias": maybe(r), "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": r.choice(({"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0}, {"rope_type": "default", "rope_theta": 1e6}))}}
    return "Gemma3ForCausalLM", {**c, **window_of_layers(r, c)}


def mixtral(r):
    return "MixtralForCausalLM", {**sizes(r, True), "num_local_experts": r.choice((3, 4, 6, 8)), "num_experts_per_tok": r.choice((1, 2, 3)), "sliding_window": r.choice((None, 6)), "rope_parameters": rotation(r)}


def qwen2_moe(r):
    return "Qwen2MoeForCausalLM", {**sizes(r, False), **experts(r), "shared_expert_intermediate_size": r.choice((24, 40)), "rope_parameters": rotation(r)}


def qwen3_moe(r):
    return "Qwen3MoeForCausalLM", {**sizes(r, True), **experts(r), "rope_parameters": rotation(r)}


def gpt_oss(r):
    c = {**sizes(r, True), "num_local_experts": r.choice((3, 5, 8)), "num_experts_per_tok": r.choice((1, 2, 3)), "attention_bias": maybe(r, 0.7),
         "swiglu_limit": r.choice((0.3, 7.0)), "rope_parameters": rotation(r)}
    return "GptOssForCausalLM", {**c, **window_of_layers(r, c)}


def gpt2(r):
    n = r.choice((1, 2, 3, 4))
    return "GPT2LMHeadModel", {"n_embd": n * r.choice((8, 16, 24)), "n_layer": r.choice((1, 2, 3)), "n_head": n, "n_positions": 64, "n_inner": r.choice((None, 60)), "vocab_size": 100, "bos_token_id": 1,
                               "eos_token_id": 2, "tie_word_embeddings": maybe(r), "activation_function": r.choice(("gelu_new", "gelu_pytorch_tanh"))}


def stablelm(r):
    c = sizes(r, False)
    del c["rms_norm_eps"]
    return "StableLmForCausalLM", {**c, "layer_norm_eps": 1e-5, "use_qkv_bias": maybe(r), "rope_parameters": {
        "rope_type": "default", "rope_theta": r.choice((100.0, 10000.0)), "partial_rotary_factor": r.choice((0.25, 0.5, 1.0))}}


def olmo2(r):
    return "Olmo2ForCausalLM", {**sizes(r, False), "attention_bias": maybe(r), "rope_parameters": rotation(r)}


def olmo3(r):
    """The window of some layers, whose rotation nothing scales."""
    c, full = sizes(r, False), rotation(r)
    c.update(window_of_layers(r, c) if maybe(r) else {"sliding_window": r.choice((5, 8))})
    return "Olmo3ForCausalLM", {**c, "attention_bias": maybe(r), "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": full["rope_theta"]}, "full_attention": full}}


def seed_oss(r):
    return "SeedOssForCausalLM", {**sizes(r, True), "attention_bias": maybe(r), "attention_out_bias": maybe(r),
                                  "mlp_bias": maybe(r), "rope_parameters": rotation(r)}


FAMILIES = (llama, mistral, qwen2, qwen3, phi3, smollm3, granite, gemma, gemma2, gemma3, mixtral, qwen2_moe, qwen3_moe, gpt_oss, gpt2,
            stablelm, olmo2, olmo3, seed_oss)


def saved(architecture, config, seed, where):
    """The model as files have it, in double."""
    cls, model = random_model(architecture, config, seed)
    model.save_pretrained(where)
    return cls.from_pretrained(where, dtype=torch.float32, experts_implementation="eager").double().eval() if "num_experts_per_tok" in config else \
        cls.from_pretrained(where, dtype=torch.float32).double().eval()


def last_logits(program, where, ids):
    """Quire's, or what it says instead."""
    done = subprocess.run([program, "score", "--model", where, "--logits", "--dtype", "f32", "--device", "cpu"], input=json.dumps({"ids": ids}) + "\n", capture_output=True, text=True,
                          timeout=120, check=False)
    return (json.loads(done.stdout)["logits"], None) if done.returncode == 0 else (None, done.stderr.strip())


def check(program, r, seed, folder):
    """"same", "refused", "skipped" (transformers has no such model) or "WRONG"."""
    family = r.choice(FAMILIES)
    architecture, config = family(r)
    where = os.path.join(folder, f"{family.__name__}-{seed}")
    try:
        model = saved(architecture, config, seed, where)
    except (ValueError, TypeError, StrictDataclassError) as e:
        return "skipped", f"{family.__name__}: {' '.join(str(e).split())[:160]}"
    ids = [r.randrange(config["vocab_size"]) for _ in range(r.choice((20, 33, 50, 64)))]
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0, -1].tolist()
    got, refusal = last_logits(program, where, ids)
    if refusal is not None:
        return "refused", f"{family.__name__}: {refusal}"
    worst = max(abs(a - b) for a, b in zip(got, want)) / max(map(abs, want))
    if len(got) == len(want) and worst <= BOUND:
        shutil.rmtree(where)
        return "same", ""
    return "WRONG", f"{family.__name__}: logits differ by {worst:.3g} of the largest: {where}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quire", default="build/quire")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    r, seen, folder = random.Random(args.seed), {}, tempfile.mkdtemp(prefix="quire-families-")
    for i in range(args.models):
        verdict, says = check(args.quire, r, args.seed * 100000 + i, folder)
        seen[verdict] = seen.get(verdict, 0) + 1
        if says:
            print(f"{verdict} {says}", flush=True)
    print(f"seed {args.seed}: " + ", ".join(f"{n} {v}" for v, n in sorted(seen.items())))
    if "WRONG" not in seen:
        shutil.rmtree(folder)
    sys.exit("WRONG" in seen)


if __name__ == "__main__":
    main()
