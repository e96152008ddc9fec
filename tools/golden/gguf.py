#!/usr/bin/env python3
"""Tiny GGUF files as llama.cpp's own converter writes them, and the logits that transformers computes in double for what they were converted from.

Writes the files, tests/model/gguf/NAME.gguf, and tests/model/golden_gguf.h. Needs what tools/check_gguf.py needs (commit 0c1e570 of llama.cpp, PyTorch 2.15 and transformers 5.23 were used):
    /tmp/peers/bin/python tools/golden/gguf.py LLAMA_CPP

Weights are random, and rounded to the file's type before transformers computes with them. The files have no vocabulary: tokens are held against llama.cpp's by tools/check_gguf.py and in
tests/tokenizer. Each family is there with what it has of its own, and with what converters write in more than one way: q, k and v in one tensor, parts, all types without blocks.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import check_gguf

IDS = 40
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 48, "max_position_embeddings": 64, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True, "sliding_window": 6}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0]}
TWO = {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}, "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 8.0}}

# name, class, what its configuration has beside SMALL, type, what the converter is told
FILES = (
    ("llama", "LlamaForCausalLM", {"rope_parameters": LLAMA3, "attention_bias": True}, "F16", {}),
    ("llama_fused", "LlamaForCausalLM", {"rope_parameters": LLAMA3, "attention_bias": True, "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2}, "BF16", {"fuse_qkv": True}),
    ("mistral", "MistralForCausalLM", {"head_dim": 16, "rope_parameters": {**YARN, "attention_factor": 1.3, "beta_fast": 8.0, "beta_slow": 2.0}, "sliding_window": None}, "F16", {}),
    ("mixtral", "MixtralForCausalLM", {"head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None, "rope_parameters": YARN}, "F16", {}),
    ("qwen2", "Qwen2ForCausalLM", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}}, "F16", {"fuse_qkv": True}),
    ("qwen3", "Qwen3ForCausalLM", {"head_dim": 16}, "F16", {"split_max_tensors": 5}),
    ("phi3", "Phi3ForCausalLM", {"rope_parameters": LONG, "original_max_position_embeddings": 16, "sliding_window": 7}, "F16", {}),
    ("smollm3", "SmolLM3ForCausalLM", {"num_hidden_layers": 4, "tie_word_embeddings": True, "rope_parameters": {**YARN, "attention_factor": 1.2}}, "F16", {}),
    ("granite", "GraniteForCausalLM", {"embedding_multiplier": 6.0, "residual_multiplier": 0.22, "attention_multiplier": 0.2, "logits_scaling": 3.0, "tie_word_embeddings": True}, "F16", {}),
    ("gemma", "GemmaForCausalLM", {"head_dim": 16, "tie_word_embeddings": True}, "F16", {}),
    ("gemma2", "Gemma2ForCausalLM", {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}, "F16", {}),
    ("gemma3", "Gemma3ForCausalLM", {**GEMMA, "num_hidden_layers": 7, "intermediate_size": 12, "rope_parameters": TWO}, "F16", {"split_max_tensors": 30}),
    ("stablelm", "StableLmForCausalLM", {"use_qkv_bias": True, "layer_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, "F16", {}),
    ("gpt2", "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 48, "bos_token_id": 1, "eos_token_id": 2}, "F32", {}),
    ("qwen2moe", "Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 20, "norm_topk_prob": False}, "F16", {}),
    ("qwen3moe", "Qwen3MoeForCausalLM", {**EXPERTS, "head_dim": 16, "norm_topk_prob": True}, "BF16", {"fuse_qkv": True}),
)


def ids_of(k):
    return [(1 + 37 * i * (k + 1) + i * i) % SMALL["vocab_size"] for i in range(IDS)]


def packed(numbers):
    lines = [""]
    for x in ("%.7g," % x for x in numbers):
        if len(lines[-1]) + len(x) > 140:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + x
    return "\n      ".join(lines)[:-1]


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "model")
    transformers.utils.logging.disable_progress_bar()
    llama = check_gguf.Llama(sys.argv[1], None)
    torch.set_num_threads(1)
    os.makedirs(os.path.join(here, "gguf"), exist_ok=True)
    rows = []
    for k, (name, cls, more, kind, options) in enumerate(FILES):
        config = {**(SMALL if cls != "GPT2LMHeadModel" else {}), **more}
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as written:
            where = os.path.join(folder, name)  # the converter calls the model so
            os.mkdir(where)
            model = check_gguf.saved(cls, config, k, where, kind)
            with torch.no_grad():
                logits = model(torch.tensor([ids_of(k)]), use_cache=False).logits[0]
            with open(os.path.join(where, "tokenizer.json"), "w", encoding="utf-8") as f:  # whose entries Gemma 3's converter counts
                json.dump({"model": {"vocab": {str(i): i for i in range(SMALL["vocab_size"])}}, "added_tokens": []}, f)
            llama.convert(where, os.path.join(written, name + ".gguf"), kind, options, vocabulary=False)
            files = sorted(f for f in os.listdir(written) if ("-of-" in f) == ("split_max_tensors" in options))
            for file in files:
                shutil.copy(os.path.join(written, file), os.path.join(here, "gguf"))
        rows.append((files, logits))
        print(name, "spread", float(logits.std()), file=sys.stderr)
    with open(os.path.join(here, "golden_gguf.h"), "w", encoding="utf-8") as f:
        f.write(f"/* Made by tools/golden/gguf.py with transformers {transformers.__version__} and PyTorch {torch.__version__.split('+')[0]}; see there. */\n")
        f.write(f"#define GOLDEN_IDS {IDS}\n#define GOLDEN_VOCAB {SMALL['vocab_size']}\n\nstatic const struct golden_gguf {{\n"
                "    const char *file; /* in tests/model/gguf, the first of its parts */\n"
                "    double logit[2][GOLDEN_VOCAB]; /* behind positions GOLDEN_IDS / 2 and GOLDEN_IDS - 1 */\n} golden[] = {\n")
        for files, logits in rows:
            f.write(f'    {{"{files[0]}",\n')
            f.write("     {{%s},\n      {%s}}},\n" % (packed(logits[IDS // 2].tolist()), packed(logits[IDS - 1].tolist())))
        f.write("};\n")


if __name__ == "__main__":
    main()
