#!/usr/bin/env python3
"""Greedy ids of two tiny random gpt-oss models, experts in bf16 and in MXFP4 as the published ones, by transformers in double precision (what its modeling code does in f32 stays so:
norms and the rotary table).

Prints tests/model/golden_gpt_oss.h. Needs PyTorch and transformers (2.15 and 5.23 were used), as families.py beside it:
    /tmp/golden/bin/python tools/golden/gpt_oss.py > tests/model/golden_gpt_oss.h
    /tmp/golden/bin/python tools/golden/gpt_oss.py DIR     # leaves them in DIR/bf16 and DIR/mxfp4, for quire generate --prompt-ids
Weights follow from their names, as in families.py, and are rounded to bf16: the file's type. Sinks are spread over some units, and
gates so wide that many are clamped. Bytes of MXFP4's codes are the upper ones of the same hash, scales 2^-4 to 2^-1, of outputs
an eighth of that; transformers itself makes numbers of them when it opens the model. Attention scores are scaled by 1/sqrt(head_dim) alone: YaRN's factor for
attention, 0.1 ln(factor) + 1, multiplies cosines and sines.
"""
import json
import os
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


FORMS = {"bf16": {}, "mxfp4": dict(intermediate_size=64)}


def values(name, shape):
    with numpy.errstate(over="ignore"):
        s = families.splitmix(numpy.uint64(families.hash_of(name)) + numpy.arange(numpy.prod(shape), dtype=numpy.uint64))
    if name.endswith("_blocks"):
        return torch.from_numpy((s >> numpy.uint64(56)).astype(numpy.uint8).reshape(shape))
    if name.endswith("_scales"):
        least = numpy.uint64(120 if "down" in name else 123)
        return torch.from_numpy((least + (s >> numpy.uint64(62))).astype(numpy.uint8).reshape(shape))
    unit = (s >> numpy.uint64(40)).astype(numpy.float64) / (1 << 24) - 0.5
    around, width = (1.0, 0.5) if "norm" in name else (0.0, 6.0 if "sinks" in name else 2.0 if "gate_up" in name else 0.4)
    return torch.from_numpy((around + unit * width).astype(numpy.float32).reshape(shape)).bfloat16()


def stored(name, shape, form):
    """Tensors of the file that hold what a model calls name."""
    if form == "bf16" or not name.endswith(("gate_up_proj", "down_proj")):
        return {name: shape}
    e, i, o = shape
    return {name + "_blocks": (e, o, i // 32, 16), name + "_scales": (e, o, i // 32)}


def saved(where, form):
    """The model's directory with the weights that are meant."""
    config = transformers.GptOssConfig(**{**CONFIG, **FORMS[form]})
    config.architectures = ["GptOssForCausalLM"]
    config.dtype = torch.bfloat16
    transformers.GptOssForCausalLM(config).save_pretrained(where)
    file = where + "/model.safetensors"
    shapes = {t: s for n, x in safetensors.torch.load_file(file).items() for t, s in stored(n, tuple(x.shape), form).items()}
    state = {t: values(t, s) for t, s in shapes.items()}
    safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    text = json.loads(config.to_json_string(use_diff=False))
    text["dtype"] = "bfloat16"
    keep = {x: y for x, y in text.items() if y is not None and x not in families.NOT_OF_THE_MODEL}
    if form == "mxfp4":
        keep["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    with open(where + "/config.json", "w") as f:
        json.dump(keep, f)
    return keep, state


def greedy(where):
    config = transformers.AutoConfig.from_pretrained(where)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    quant = dict(quantization_config=transformers.Mxfp4Config(dequantize=True)) if hasattr(config, "quantization_config") else {}
    model = transformers.GptOssForCausalLM.from_pretrained(where, config=config, dtype=torch.float32, **quant).double().eval()
    assert model.model.layers[0].mlp.experts.down_proj.dtype == torch.float64
    ids = [(1 + 37 * i + i * i) % config.vocab_size for i in range(PROMPT)]
    gap, first = float("inf"), None
    with torch.no_grad():
        for _ in range(MADE):
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
            first = logits if first is None else first
            best = torch.topk(logits, 2).values
            gap = min(gap, float(best[0] - best[1]))
            ids.append(int(logits.argmax()))
    print("least gap", gap, "spread", float(first.std()), "ids", ids, file=sys.stderr)
    return ids, first


def print_model(form, keep, state, ids, first):
    print("static const struct golden_tensor %s_tensor[] = {" % form)
    print("    " + families.packed(["{\"%s\", {%s}}" % (t, ", ".join(map(str, x.shape))) for t, x in state.items()], "    ") + "};\n")
    print("static const struct golden_model %s_model = {.name = \"%s\", .tensor = %s_tensor, .n = sizeof %s_tensor / sizeof *%s_tensor, .config =" % (
        form, form, form, form, form))
    print("     %s," % families.c_string(json.dumps(keep)))
    print("    .ids = {\n    " + families.packed(map(str, ids), "    ") + "},")
    print("    .lse = %.9g, .logit = {\n    %s}};\n"
          % (float(torch.logsumexp(first, 0)), ", ".join("%.7g" % float(first[16 * i]) for i in range(SHOWN))))


def main():
    print("/* Made by tools/golden/gpt_oss.py with transformers %s and PyTorch %s; see there. */" %
          (transformers.__version__, torch.__version__.split("+")[0]))
    print("#define GOLDEN_PROMPT %d\n#define GOLDEN_MADE %d\n#define GOLDEN_SHOWN %d\n" % (PROMPT, MADE, SHOWN))
    print("struct golden_tensor {\n    const char *name;\n    int64_t shape[4]; /* 0: no such dimension */\n};\n")
    print("struct golden_model {\n    const char *name, *config;\n    const struct golden_tensor *tensor;\n    int32_t n;\n"
          "    int32_t ids[GOLDEN_PROMPT + GOLDEN_MADE];\n    double lse, logit[GOLDEN_SHOWN]; /* behind the prompt: their log-sum-exp, and logits 0, 16, ... */\n};\n")
    with tempfile.TemporaryDirectory() as made:
        for form in FORMS:
            where = os.path.join(sys.argv[1] if len(sys.argv) > 1 else made, form)
            os.makedirs(where, exist_ok=True)
            keep, state = saved(where, form)
            print_model(form, keep, state, *greedy(where))


if __name__ == "__main__":
    main()
