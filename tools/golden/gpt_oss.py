#!/usr/bin/env python3
"""Greedy ids of a tiny random gpt-oss, by transformers in double precision (what its modeling code does in f32 stays so:
norms and the rotary table).

Prints tests/model/golden_gpt_oss.h. Needs PyTorch and transformers (2.15 and 5.23 were used), as families.py beside it:
    /tmp/golden/bin/python tools/golden/gpt_oss.py > tests/model/golden_gpt_oss.h
    /tmp/golden/bin/python tools/golden/gpt_oss.py DIR     # leaves the model there, for quire generate --prompt-ids
Weights follow from their names, as in families.py, and are rounded to bf16: the file's type. Sinks are spread over some units, and
gates so wide that many are clamped. Attention scores are scaled by 1/sqrt(head_dim) alone: YaRN's factor for
attention, 0.1 ln(factor) + 1, multiplies cosines and sines.
"""
import json
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

import families

PROMPT, MADE, SHOWN = 21, 27, 8
CONFIG = dict(num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=3, vocab_size=128, hidden_size=64, intermediate_size=48,
              head_dim=64, num_attention_heads=4, num_key_value_heads=2, sliding_window=8, max_position_embeddings=256,
              bos_token_id=1, eos_token_id=2, pad_token_id=None, rope_parameters=dict(
                  rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                  original_max_position_embeddings=32))


def values(name, shape):
    with numpy.errstate(over="ignore"):
        s = families.splitmix(numpy.uint64(families.hash_of(name)) + numpy.arange(numpy.prod(shape), dtype=numpy.uint64))
    unit = (s >> numpy.uint64(40)).astype(numpy.float64) / (1 << 24) - 0.5
    around, width = (1.0, 0.5) if "norm" in name else (0.0, 6.0 if "sinks" in name else 2.0 if "gate_up" in name else 0.4)
    return torch.from_numpy((around + unit * width).astype(numpy.float32).reshape(shape)).bfloat16()


def saved(where):
    """The model's directory with the weights that are meant."""
    config = transformers.GptOssConfig(**CONFIG)
    config.architectures = ["GptOssForCausalLM"]
    config.dtype = torch.bfloat16
    transformers.GptOssForCausalLM(config).save_pretrained(where)
    file = where + "/model.safetensors"
    state = {t: values(t, tuple(x.shape)) for t, x in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    return config, state


def main():
    with tempfile.TemporaryDirectory() as made:
        where = sys.argv[1] if len(sys.argv) > 1 else made
        config, state = saved(where)
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        model = transformers.GptOssForCausalLM.from_pretrained(where, config=config, dtype=torch.float32).double().eval()
        ids = [(1 + 37 * i + i * i) % config.vocab_size for i in range(PROMPT)]
        gap, first = float("inf"), None
        with torch.no_grad():
            for _ in range(MADE):
                logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
                first = logits if first is None else first
                best = torch.topk(logits, 2).values
                gap = min(gap, float(best[0] - best[1]))
                ids.append(int(logits.argmax()))
    text = json.loads(config.to_json_string(use_diff=False))
    text["dtype"] = "bfloat16"
    keep = {x: y for x, y in text.items() if y is not None and x not in families.NOT_OF_THE_MODEL}
    print("least gap", gap, "spread", float(first.std()), "ids", ids, file=sys.stderr)
    print("/* Made by tools/golden/gpt_oss.py with transformers %s and PyTorch %s; see there. */" %
          (transformers.__version__, torch.__version__.split("+")[0]))
    print("#define GOLDEN_PROMPT %d\n#define GOLDEN_MADE %d\n#define GOLDEN_SHOWN %d\n" % (PROMPT, MADE, SHOWN))
    print("static const char golden_config[] =\n     %s;\n" % families.c_string(json.dumps(keep)))
    print("static const struct {\n    const char *name;\n    int64_t shape[3]; /* 0: no such dimension */\n} golden_tensor[] = {")
    print("    " + families.packed(["{\"%s\", {%s}}" % (t, ", ".join(map(str, x.shape))) for t, x in state.items()], "    ") + "};\n")
    print("static const int32_t golden_ids[GOLDEN_PROMPT + GOLDEN_MADE] = {\n    " + families.packed(map(str, ids), "    ") + "};\n")
    print("/* Behind the prompt: their log-sum-exp, and logits 0, 16, ... */\nstatic const double golden_lse = %.9g, golden_logit[GOLDEN_SHOWN] = {\n    %s};"
          % (float(torch.logsumexp(first, 0)), ", ".join("%.7g" % float(first[16 * i]) for i in range(SHOWN))))


if __name__ == "__main__":
    main()
