#!/usr/bin/env python3
"""gpu_torch.py PART... - PyTorch on this GPU at the shapes of `quire bench kern --device cuda`, `bench throughput` and `bench train`: what quire stands against.

PART   a name of PARTS below, all of them without; a part that fails does not hide the others, and the exit status is their number.

Prints a JSON line for each case, with quire's name for it. Times are medians of batches of calls, by events; random operands. Models are transformers' Llama with
random weights; layers are compiled one by one (torch.compile of a layer serves all of them and takes seconds; of a whole model a minute), decoding as a whole, by
generate() with a static cache. Training: `autocast` has f32 weights and bf16 products, as quire has; `bf16` has bf16 weights and moments as well.

With QUIRE_GPU_SMALL=1 and QUIRE_TORCH_DEVICE=cpu it can be tried without a GPU."""
import json
import os
import statistics
import sys
import time

import torch

DEVICE = os.environ.get('QUIRE_TORCH_DEVICE', 'cuda')
SMALL = bool(os.environ.get('QUIRE_GPU_SMALL'))
COLD_BYTES = (8 if SMALL else 256) << 20  # operands of successive calls are spread over so much
SHAPES = ((64, 96),) if SMALL else ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256), (2048, 16384))
# layers, width, heads, of keys and values, their size, feed-forward, vocabulary, tied head
LLAMA_1B = (16, 2048, 32, 8, 64, 8192, 128256, True)
QWEN_05B = (24, 896, 14, 2, 64, 4864, 151936, True)
QWEN_15B = (28, 1536, 12, 2, 128, 8960, 151936, True)


def wait():
    if DEVICE == 'cuda':
        torch.cuda.synchronize()


def seconds(call, n=20, batches=5):
    call()
    wait()
    times = []
    for _ in range(1 if SMALL else batches):
        begin = time.perf_counter()
        if DEVICE == 'cuda':
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
        for _ in range(n):
            call()
        if DEVICE == 'cuda':
            events[1].record()
        wait()
        times.append((events[0].elapsed_time(events[1]) * 1e-3 if DEVICE == 'cuda' else time.perf_counter() - begin) / n)
    return statistics.median(times)


def say(**row):
    print(json.dumps(row), flush=True)


def kern(case, t, n_bytes, flop):
    say(case=case, median_us=round(t * 1e6, 2), gb_s=round(n_bytes / t * 1e-9, 1), gflop_s=round(flop / t * 1e-9, 1))


def bf16(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def products():
    for n_in, n_out in SHAPES:
        w = [bf16(n_out, n_in) for _ in range(COLD_BYTES // (2 * n_in * n_out) + 1)]
        for n in (1, 16, 64, 256, 4096):
            if n > 256 and n_out > 100000:
                continue
            x, turn = bf16(n, n_in), [0]

            def call():
                turn[0] += 1
                torch.mm(x, w[turn[0] % len(w)].t())
            kern(f'linear {n} x {n_in} -> {n_out}, bf16', seconds(call), 2 * (n_in * n_out + n * (n_in + n_out)), 2 * n * n_in * n_out)


def products_fp8():
    """Scales for each row and each output, as quire has."""
    e4m3 = lambda *shape: torch.randn(*shape, device=DEVICE).to(torch.float8_e4m3fn)
    for n_in, n_out in SHAPES[:4]:
        w, b = e4m3(n_out, n_in), torch.ones(1, n_out, device=DEVICE)
        for n in (64, 256, 4096):
            x, a = e4m3(n, n_in), torch.ones(n, 1, device=DEVICE)
            t = seconds(lambda: torch._scaled_mm(x, w.t(), scale_a=a, scale_b=b, out_dtype=torch.bfloat16))
            kern(f'linear {n} x {n_in} -> {n_out}, fp8', t, n_in * n_out + n * n_in + 2 * n * n_out, 2 * n * n_in * n_out)


def attention():
    sdpa = torch.nn.functional.scaled_dot_product_attention
    h, g, k = (4, 2, 64) if SMALL else (32, 8, 128)
    for n in (64,) if SMALL else (4096, 16384):
        q, keys, values = bf16(1, h, n, k), bf16(1, g, n, k), bf16(1, g, n, k)
        q.requires_grad_()
        with torch.no_grad():
            t = seconds(lambda: sdpa(q, keys, values, is_causal=True, enable_gqa=True), 5)
        kern(f'attention 1 seqs x {n} rows, ctx {n}, {h}/{g} x {k}', t, 2 * n * k * (2 * h + 2 * g), 4 * h * k * n * (n + 1) / 2)
        keys.requires_grad_(), values.requires_grad_()
        out = sdpa(q, keys, values, is_causal=True, enable_gqa=True)
        dout = torch.randn_like(out)
        t = seconds(lambda: torch.autograd.grad(out, (q, keys, values), dout, retain_graph=True), 3)
        kern(f'attention back 1 seqs x {n} rows, ctx {n}, {h}/{g} x {k}', t, 2 * n * k * (4 * h + 4 * g), 10 * h * k * n * (n + 1) / 2)
    for s, ctx in ((2, 64),) if SMALL else ((1, 4096), (64, 4096), (256, 1024)):
        q, keys, values = bf16(s, h, 1, k), bf16(s, g, ctx, k), bf16(s, g, ctx, k)
        t = seconds(lambda: sdpa(q, keys, values, enable_gqa=True), 5)
        kern(f'attention {s} seqs x 1 rows, ctx {ctx}, {h}/{g} x {k}', t, s * ctx * g * k * 4, 4 * s * h * k * ctx)


def rows():
    """Fused by torch.compile; f32 rows, as quire's are."""
    n, d, f = (8, 64, 96) if SMALL else (8192, 4096, 14336)
    x, w, gate_up = (torch.randn(*shape, device=DEVICE) for shape in ((n, d), (d,), (n, 2 * f)))

    @torch.compile
    def norm(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    @torch.compile
    def glu(gate_up):
        return torch.nn.functional.silu(gate_up[:, :f]) * gate_up[:, f:]
    kern(f'rms_norm {n} x {d}', seconds(lambda: norm(x, w)), 8 * n * d, 0)
    kern(f'glu {n} x {f}', seconds(lambda: glu(gate_up)), 12 * n * f, 0)


def llama(shape, dtype):
    from transformers import LlamaConfig, LlamaForCausalLM
    n_layers, d, h, g, k, f, v, tied = (2, 64, 2, 1, 32, 96, 256, True) if SMALL else shape
    config = LlamaConfig(vocab_size=v, hidden_size=d, intermediate_size=f, num_hidden_layers=n_layers, num_attention_heads=h, num_key_value_heads=g, head_dim=k,
                         max_position_embeddings=8192, tie_word_embeddings=tied, attn_implementation='sdpa', pad_token_id=0, bos_token_id=1, eos_token_id=2)
    with torch.device(DEVICE):
        return LlamaForCausalLM(config).to(dtype)


def by_layer(model):
    for layer in model.model.layers:
        layer.compile()
    return model


def ids_of(model, *shape):
    return torch.randint(3, model.config.vocab_size, shape, device=DEVICE)


def prompt():
    model = by_layer(llama(LLAMA_1B, torch.bfloat16)).eval()
    n = 32 if SMALL else 4096
    ids = ids_of(model, 1, n)
    with torch.inference_mode():
        t = seconds(lambda: model(ids, use_cache=False, logits_to_keep=1), 3, 3)
    say(case='prefill', batch=1, depth=0, tokens=n, tok_s=round(n / t, 1))


def decode():
    model = llama(LLAMA_1B, torch.bfloat16).eval()
    depth, more = (8, 4) if SMALL else (1024, 64)
    ids = ids_of(model, 1, depth)

    def once(n):
        wait()
        begin = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, do_sample=False, cache_implementation='static')
        wait()
        return time.perf_counter() - begin
    for n in (1, 1 + more):  # one token comes of the prompt alone, which generate() does not compile
        once(n)
    t = min(once(1 + more) for _ in range(2)) - min(once(1) for _ in range(2))
    say(case='decode', batch=1, depth=depth, tokens=more, tok_s=round(more / t, 1))


def train(shape, name, kind):
    model = by_layer(llama(shape, torch.bfloat16 if kind == 'bf16' else torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = ids_of(model, 2, 16 if SMALL else 2048)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=kind == 'autocast'):
            loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    t = seconds(step, 3, 3)
    say(case=f'train {name}, {kind}', tokens=ids.numel(), tokens_per_s=round(ids.numel() / t, 1))


PARTS = {'products': products, 'products_fp8': products_fp8, 'attention': attention, 'rows': rows, 'prompt': prompt, 'decode': decode,
         'train_05b': lambda: train(QWEN_05B, '0.5b', 'autocast'), 'train_15b': lambda: train(QWEN_15B, '1.5b', 'autocast'),
         'train_05b_bf16': lambda: train(QWEN_05B, '0.5b', 'bf16'), 'train_15b_bf16': lambda: train(QWEN_15B, '1.5b', 'bf16')}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    if not set(wanted) <= set(PARTS):
        sys.exit(f'gpu_torch.py: parts are {" ".join(PARTS)}')
    say(torch=torch.__version__, device=torch.cuda.get_device_name() if DEVICE == 'cuda' else DEVICE)
    failed = 0
    for name in wanted:
        began = time.time()
        try:
            PARTS[name]()
        except Exception as e:  # one part that fails must not hide the others
            print(f'error: {name} failed: {type(e).__name__}: {str(e)[:2000]}', flush=True)
            failed += 1
        print(f'{name}: {time.time() - began:.0f} s', flush=True)
        if DEVICE == 'cuda':
            torch.cuda.empty_cache()
    return failed


if __name__ == '__main__':
    sys.exit(main())
