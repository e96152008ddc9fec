#!/usr/bin/env python3
"""Small products with quantized weights, computed from the text of kernels.h and quant.h alone, with exact integers and Python's doubles rounded to f32
after each operation that the text calls a single one. Prints tests/kernels/golden_quant.h:   tools/golden/quant.py > tests/kernels/golden_quant.h
"""
import struct

ROWS, INPUTS, OUTPUTS = 3, 200, 5
FORMATS = [("QR_Q8", 8, 0), ("QR_Q4", 4, 32)]


def f32(x):
    """To f32. Exact operands of 24 bits keep +, *, / right through double: 53 >= 2 * 24 + 2."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def number(i):
    """Number i of the inputs: 20 bits from a multiplication by Knuth's constant, around 0; every seventh is small."""
    h = (i * 2654435761 + 12345) % 2**32
    x = ((h >> 12) - 2**19) / 2**19
    return x / 16 if i % 7 == 0 else x


def row_scale(row, largest):
    most = max(abs(v) for v in row)
    return f32(most / largest), f32(largest / most)


def group4(values):
    """n and m of a group: the smallest m that holds the largest, or one of the two below it if that errs less in squares."""
    most = max(abs(v) for v in values)
    holds = next((m for m in range(1, 16) if 7 * m >= most), 15)
    tried = []
    for m in range(holds, max(holds - 3, 0), -1):
        n = [min(7, max(-8, round(f32(v * f32(1 / m))))) for v in values]
        tried.append((sum((v - k * m) ** 2 for v, k in zip(values, n)), m, n))
    best = min(tried, key=lambda t: t[0])
    return best[1], best[2]


def integers(row, width, group):
    """The integers p of a row of weights, and its scale."""
    scale, inverse = row_scale(row, 105.0 if width == 4 else 127.0)
    v = [f32(x * inverse) for x in row]
    if not group:
        return [round(x) for x in v], scale
    p = []
    for k in range(0, len(v), group):
        part = v[k:k + group]
        m, n = group4(part + [0.0] * (group - len(part)))
        p += [m * x for x in n[:len(part)]]
    return p, scale


def main():
    x = [[number(r * INPUTS + k) for k in range(INPUTS)] for r in range(ROWS)]
    w = [[number(100000 + o * INPUTS + k) for k in range(INPUTS)] for o in range(OUTPUTS)]
    print("/* Made by tools/golden/quant.py from the text of kernels.h and quant.h; see there. */")
    print("#define GOLDEN_ROWS %d\n#define GOLDEN_INPUTS %d\n#define GOLDEN_OUTPUTS %d\n" % (ROWS, INPUTS, OUTPUTS))
    print("static const struct {\n    enum qr_dtype to;\n    float scale[GOLDEN_OUTPUTS];\n    double want[GOLDEN_ROWS][GOLDEN_OUTPUTS];\n} golden[] = {")
    for name, width, group in FORMATS:
        weights = [integers(row, width, group) for row in w]
        lines = []
        for row in x:
            out = []
            scale, inverse = row_scale(row, 127.0)
            q = [round(f32(v * inverse)) for v in row]
            for p, a in weights:
                out.append(f32(f32(sum(i * n for i, n in zip(q, p))) * f32(scale * a)))
            lines.append("{" + ", ".join(v.hex() for v in out) + "}")
        print("    {%s, {%s},\n     {%s}}," % (name, ", ".join(a.hex() + "f" for _, a in weights), ",\n      ".join(lines)))
    print("};")


if __name__ == "__main__":
    main()
