#!/usr/bin/env python3
"""cuda_fits.py LIBQUIRE_CUDA.SO - whether each kernel of the library could start on each GPU that the library is for; a table of what they take.

Reads the machine code in the library (cuobjdump of CUDA's toolkit, or of Python's triton: in PATH, or what CUOBJDUMP names, takes it out). Exit status 1 where
a kernel has no code for one of the devices, where a block of as many threads as it was compiled for wants more registers than a multiprocessor has, or more
static shared memory than a launch may have; with --spills N also where stores and loads that spill take more than N bytes of stack in any kernel.
Shared memory of a launch is checked where kernels are compiled (QR_SHARED_EVERYWHERE) and launched."""
import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile

# Of a multiprocessor: threads, blocks, KiB of shared memory; a block may ask for one KiB less than those, and everyone has 65,536 registers.
DEVICES = {80: (2048, 32, 164), 86: (1536, 16, 100), 89: (1536, 24, 100), 90: (2048, 32, 228), 120: (1536, 24, 100)}
REGISTERS = 65536
MAX_THREADS, MIN_STACK, REG_COUNT = 0x05, 0x12, 0x2F  # attributes of .nv.info


def sections(data):
    """name -> (type, info, bytes or None, size) of an ELF file of 64 bits."""
    table, = struct.unpack_from('<Q', data, 0x28)
    each, count, names = struct.unpack_from('<3H', data, 0x3A)
    found = [struct.unpack_from('<IIQQQQIIQQ', data, table + i * each) for i in range(count)]
    strings = data[found[names][4]:found[names][4] + found[names][5]]
    out = []
    for name, kind, _, _, at, size, link, info, _, entry in found:
        out.append((strings[name:strings.index(b'\0', name)].decode(), kind, info, data[at:at + size] if kind != 8 else b'', size))
    return out


def attributes(info):
    """(attribute, bytes) of a section .nv.info."""
    at = 0
    while at + 4 <= len(info):
        form, what, size = struct.unpack_from('<BBH', info, at)
        at += 4
        if form == 4:
            yield what, info[at:at + size]
            at += size


def kernels_of(path):
    """kernel -> registers, threads, static shared memory, stack."""
    all_of = sections(open(path, 'rb').read())
    out = {}
    symbols = next(s[3] for s in all_of if s[0] == '.symtab')
    names = next(s[3] for s in all_of if s[0] == '.strtab')
    for name, _, info, _, _ in all_of:
        if name.startswith('.text.'):
            out[name[6:]] = [info >> 24, 0, 0, 0]  # registers: of older toolkits
    for name, _, _, data, size in all_of:
        kernel = name.split('.', 3)[-1] if name.startswith(('.nv.info.', '.nv.shared.')) else None
        if kernel in out and name.startswith('.nv.shared.'):
            out[kernel][2] = size
        for what, value in attributes(data) if name.startswith('.nv.info') else ():
            if what == MAX_THREADS and kernel in out:
                x, y, z = struct.unpack('<3I', value)
                out[kernel][1] = x * y * z
            elif what in (MIN_STACK, REG_COUNT) and name == '.nv.info':
                symbol, number = struct.unpack('<2I', value)
                start, = struct.unpack_from('<I', symbols, 24 * symbol)
                of = names[start:names.index(b'\0', start)].decode()
                if of in out:
                    out[of][3 if what == MIN_STACK else 0] = number
    return out


def extract(library, to):
    tool = os.environ.get('CUOBJDUMP') or shutil.which('cuobjdump') or '/usr/local/cuda/bin/cuobjdump'
    try:
        subprocess.run([tool, '-xelf', 'all', os.path.abspath(library)], cwd=to, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        print('cuda_fits: no cuobjdump here (CUOBJDUMP names one)')
        sys.exit(77)
    except subprocess.CalledProcessError as e:
        sys.exit(f'cuda_fits: error: {e.stdout}{e.stderr}')
    codes = {}
    for name in sorted(os.listdir(to)):
        arch = int(''.join(c for c in name.split('.sm_')[1].split('.')[0] if c.isdigit()))
        for kernel, takes in kernels_of(os.path.join(to, name)).items():
            codes.setdefault(kernel, {})[arch] = takes
    return codes


def blocks_at_a_time(device, takes):
    """Blocks of a multiprocessor by registers, threads and static shared memory; dynamic shared memory may leave fewer."""
    registers, threads, shared, _ = takes
    warps = (threads + 31) // 32
    most_threads, most_blocks, kib = DEVICES[device]
    of_warp = (registers * 32 + 255) // 256 * 256
    by_registers = 4 * (REGISTERS // 4 // of_warp) // warps  # a quarter of a multiprocessor has a quarter of its registers
    return min(by_registers, most_threads // (32 * warps), most_blocks, kib * 1024 // (shared + 1024))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('library')
    parser.add_argument('--archs', default='80 86 89 90 120', help='devices that the library is for')
    parser.add_argument('--spills', type=int, help='bytes of stack that a kernel may have at most')
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as to:
        codes = extract(o.library, to)
    devices = [int(a.rstrip('a')) for a in o.archs.replace(';', ' ').split()]
    filt = shutil.which('c++filt')
    names = subprocess.run([filt], input='\n'.join(codes), capture_output=True, text=True).stdout.split('\n') if filt else list(codes)
    bad = 0
    print('registers, stack, blocks of a multiprocessor by registers (dynamic shared memory may leave fewer), for each device')
    for (kernel, by_arch), name in sorted(zip(codes.items(), names), key=lambda x: x[1]):
        row = []
        for device in devices:
            if 'hopper' in kernel and device != 90:
                continue
            arch = max((a for a in by_arch if a // 10 == device // 10 and a <= device), default=None)
            if arch is None:
                row.append(f'{device}: NO CODE')
                bad += 1
                continue
            takes = by_arch[arch]
            n = blocks_at_a_time(device, takes)
            too_much = takes[1] == 0 or n == 0 or takes[2] > 48 * 1024 or (o.spills is not None and takes[3] > o.spills)
            bad += too_much
            row.append(f'{device}: {takes[0]} {takes[3]} {n}{" WRONG" if too_much else ""}')
        print(f'{name.split("(")[0][:64] if "(" not in name[:12] else name[:64]:<64} {next(iter(by_arch.values()))[1]:>5} threads  ' + '  '.join(row))
    print(f'{len(codes)} kernels for {len(devices)} devices: {bad} wrong')
    return 1 if bad or not codes else 0


if __name__ == '__main__':
    sys.exit(main())
