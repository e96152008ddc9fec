#!/usr/bin/env python3
"""Three steps of Muon on a wide and a tall matrix, in doubles, from the formulas of Jordan et al. 2024 and Liu et al. 2025 (train/muon.h) alone: the
orthogonal factor's iteration with numpy's products. Prints tests/train/golden_muon.h:   tools/golden/muon.py > tests/train/golden_muon.h
"""
import numpy as np

LR, MOMENTUM, DECAY, GSCALE, STEPS, SAMPLES = 0.02, 0.95, 0.1, 0.5, 3, 12
SHAPES = [(24, 40), (40, 24), (32, 32)]


def numbers(n, seed):
    """20 bits from a multiplication by Knuth's constant, around 0: exact in f32."""
    i = np.arange(n, dtype=np.uint64) + np.uint64(seed * 1000003)
    h = (i * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(2**32)
    h = (h ^ (h >> np.uint64(15))) * np.uint64(2246822519) % np.uint64(2**32)
    return ((h >> np.uint64(12)).astype(np.float64) - 2**19) / 2**19


def orthogonal(u):
    x = u / (np.linalg.norm(u) + 1e-7)
    if x.shape[0] > x.shape[1]:
        return orthogonal(u.T).T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def run(rows, cols):
    w, m = numbers(rows * cols, 0).reshape(rows, cols), np.zeros((rows, cols))
    for step in range(STEPS):
        g = numbers(rows * cols, step + 1).reshape(rows, cols) * GSCALE
        m = MOMENTUM * m + g
        u = orthogonal(g + MOMENTUM * m)
        w = w * (1 - LR * DECAY) - LR * 0.2 * np.sqrt(max(rows, cols)) * u
    at = [(k * 7919) % (rows * cols) for k in range(SAMPLES)]
    return w.ravel()[at], m.ravel()[at], (w * w).sum(), np.linalg.svd(u, compute_uv=False)


print("/* Made by tools/golden/muon.py; see there. Sample k is number k * 7919 % (rows * columns). */")
print(f"#define GOLDEN_LR {LR}\n#define GOLDEN_MOMENTUM {MOMENTUM}\n#define GOLDEN_DECAY {DECAY}\n#define GOLDEN_GSCALE {GSCALE}\n#define GOLDEN_STEPS {STEPS}")
print(f"#define GOLDEN_SAMPLES {SAMPLES}\n")
print("static const struct {\n    int32_t rows, cols;\n    double squares, w[GOLDEN_SAMPLES], m[GOLDEN_SAMPLES];\n} golden[] = {")
for rows, cols in SHAPES:
    w, m, squares, sv = run(rows, cols)
    print(f"    /* singular values of the last update: {sv.min():.3f} to {sv.max():.3f} */")
    lines = [", ".join(f"{x:.17g}" for x in part) for part in (w[:6], w[6:], m[:6], m[6:])]
    print(f"    {{{rows}, {cols}, {squares:.17g},\n     {{{lines[0]},\n      {lines[1]}}},\n     {{{lines[2]},\n      {lines[3]}}}}},")
print("};")
