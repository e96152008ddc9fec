#!/usr/bin/env python3
"""gpu_torch.py - PyTorch on this GPU at the shapes of `quire bench kern --device cuda` and `quire bench throughput`: what quire stands against.

Prints lines like quire's. Times are medians of batches of calls, by events; random operands. The model is transformers' Llama of the 1B shape with random
weights, where transformers is installed: prefill, decode of one sequence with a static cache, and training steps, each compiled."""
import statistics
import sys
import time

import torch


def seconds(call, n=20, batches=5):
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(batches):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(n):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / n * 1e-3)
    return statistics.median(times)


def report(what, t, n_bytes, flop):
    print(f'{what:<58} {t * 1e6:10.1f} us {n_bytes / t * 1e-9:7.0f} GB/s {flop / t * 1e-12:8.1f} TFLOP/s', flush=True)


def products():
    for n_in, n_out in ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256), (2048, 16384)):
        w = [torch.randn(n_out, n_in, device='cuda', dtype=torch.bfloat16) for _ in range(max(1, (256 << 20) // (2 * n_in * n_out) + 1))]
        for n in (1, 16, 64, 256, 4096):
            if n > 256 and n_out > 100000:
                continue
            x = torch.randn(n, n_in, device='cuda', dtype=torch.bfloat16)
            turn = [0]

            def call():
                turn[0] += 1
                torch.mm(x, w[turn[0] % len(w)].t())
            report(f'torch.mm {n} x {n_in} -> {n_out}, bf16', seconds(call), 2 * (n_in * n_out + n * (n_in + n_out)), 2 * n * n_in * n_out)


def products_fp8():
    one = lambda n: torch.ones(n, 1, device='cuda')
    for n_in, n_out in ((4096, 6144), (4096, 28672), (14336, 4096)):
        w = torch.randn(n_out, n_in, device='cuda').to(torch.float8_e4m3fn)
        for n in (64, 256, 4096):
            x = torch.randn(n, n_in, device='cuda').to(torch.float8_e4m3fn)
            a, b = one(n), one(n_out).t().contiguous()
            t = seconds(lambda: torch._scaled_mm(x, w.t(), scale_a=a, scale_b=b, out_dtype=torch.bfloat16))
            report(f'torch._scaled_mm {n} x {n_in} -> {n_out}, fp8', t, n_in * n_out + n * n_in + 2 * n * n_out, 2 * n * n_in * n_out)


def attention():
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for n in (4096, 16384):
        q = torch.randn(1, 32, n, 128, device='cuda', dtype=torch.bfloat16)
        k, v = (torch.randn(1, 8, n, 128, device='cuda', dtype=torch.bfloat16) for _ in range(2))
        t = seconds(lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True), 5)
        report(f'sdpa causal {n}, 32/8 x 128', t, 2 * n * 128 * 80, 4 * 32 * 128 * n * (n + 1) / 2)
    q = torch.randn(64, 32, 1, 128, device='cuda', dtype=torch.bfloat16)
    k, v = (torch.randn(64, 8, 4096, 128, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    t = seconds(lambda: sdpa(q, k, v, enable_gqa=True), 5)
    report('sdpa decode, 64 seqs x ctx 4096, 32/8 x 128', t, 64 * 4096 * 8 * 128 * 4, 4 * 64 * 32 * 128 * 4096)


def llama():
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        print('transformers is not installed: no model')
        return
    c = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                    head_dim=64, max_position_embeddings=131072, rope_theta=500000.0, tie_word_embeddings=True, torch_dtype=torch.bfloat16)
    with torch.device('cuda'):
        m = LlamaForCausalLM(c).to(torch.bfloat16)
    ids = torch.randint(0, c.vocab_size, (1, 4096), device='cuda')
    forward = torch.compile(m)
    with torch.inference_mode():
        t = seconds(lambda: forward(ids, use_cache=False, logits_to_keep=1), 3, 3)
    print(f'llama-3.2-1b prefill 4096, torch.compile: {4096 / t:.0f} tokens/s', flush=True)
    began = time.time()
    m.generation_config.cache_implementation = 'static'
    for n in (8, 8, 72):
        torch.cuda.synchronize()
        begin = time.time()
        m.generate(ids[:, :1024], max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()
        last = time.time() - begin
        if n == 8:
            short = last
    print(f'llama-3.2-1b decode of 1 at 1024, generate with a static cache: {64 / (last - short):.1f} tokens/s ({time.time() - began:.0f} s)', flush=True)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-5, fused=True)
    batch = ids.view(2, 2048)

    def step():
        forward(batch, labels=batch, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    t = seconds(step, 3, 3)
    print(f'llama-3.2-1b training, 2 x 2048 tokens, torch.compile: {4096 / t:.0f} tokens/s', flush=True)


def main():
    print(torch.__version__, torch.cuda.get_device_name())
    failed = 0
    for part in (products, products_fp8, attention, llama):
        try:
            part()
        except Exception as e:  # one part that fails must not hide the others
            print(f'error: {part.__name__} failed: {type(e).__name__}: {e}', flush=True)
            failed += 1
        torch.cuda.empty_cache()
    return failed


if __name__ == '__main__':
    sys.exit(main())
