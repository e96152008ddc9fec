#!/usr/bin/env python3
"""tidy.py - the house rules that a program can check: layers, doors, sizes, headers, words, documents.

Reads the tracked and the new C files and documents of the repository and prints one line per finding; exit status 1 when
there is any. The rules themselves are in docs/architecture.md (layers, doors) and docs/adding.md.
"""
import os
import re
import subprocess
import sys

# What each folder may include from the others (docs/architecture.md, "Layers").
MAY = {
    'base': set(),
    'kernels': {'base'},
    'tokenizer': {'base'},
    'kvcache': {'base'},
    'answers': {'tokenizer', 'base'},
    'comm': {'kernels', 'base'},
    'loader': {'kernels', 'base'},
    'scheduler': {'kvcache', 'base'},
    'exchange': {'kvcache', 'base'},
    'model': {'loader', 'comm', 'kernels', 'base'},
    'engine': {'model', 'exchange', 'scheduler', 'kvcache', 'answers', 'tokenizer', 'loader', 'comm', 'kernels', 'base'},
    'train': {'model', 'loader', 'comm', 'kernels', 'tokenizer', 'base'},
    'hub': {'base'},
    'server': {'engine', 'model', 'loader', 'scheduler', 'kvcache', 'kernels', 'answers', 'tokenizer', 'base'},
    'client': {'base'},
    'bench': {'hub', 'client', 'train', 'comm', 'engine', 'model', 'loader', 'scheduler', 'kvcache', 'kernels', 'answers', 'tokenizer', 'base'},
}
# scheduler and model never meet; the server sees the engine through engine.h and stats.h alone, answers/ through two headers.
SERVER_SEES = {'engine/engine.h', 'engine/adapters.h', 'engine/exchange.h', 'engine/stats.h', 'engine/pins.h', 'engine/view.h',
               'tokenizer/tokenizer.h', 'tokenizer/chat.h',
               'tokenizer/template.h', 'loader/model_config.h', 'loader/config/scorer.h', 'answers/constraint.h', 'answers/dialect/dialect.h'}

# A dependency's header, and the places that may include it.
DOORS = [
    (r'cjson/|cJSON\.h', r'base/json\w*\.[ch]$'),
    (r'yaml\.h', r'base/option\w*\.c$'),
    (r'xxhash\.h', r'base/hash\.c$'),
    (r'uv\.h|llhttp\.h', r'(server|client|bench)/|tests/(server|client|bench|fuzz)/|tests/\w+\.[ch]$'),
    (r'pcre2\.h|utf8proc\.h', r'tokenizer/|tests/tokenizer/'),
    (r'histedit\.h|editline/', r'client/'),
    (r'openssl/', r'base/sha256\.c$|server/tls\.c$|hub/digest\.c$'),
    (r'seccomp\.h', r'server/sandbox\.c$'),
    (r'curl/', r'hub/curl_\w+\.[ch]$'),
    (r'cuda\w*\.h|cublas\w*\.h', r'kernels/cuda/|tests/cuda_emu/'),
    (r'nccl\.h', r'kernels/cuda/peers\.c$'),
    (r'mpi\.h', r'comm/mpi/comm_mpi\.c$'),
    (r'ucp/|ucs/', r'exchange/wire_ucx\.c$'),
    (r'criterion/', r'tests/'),
]
WORDS = re.compile(r'\b(TODO|FIXME|XXX|HACK)\b|[Nn]ot implemented|[Uu]nimplemented|[Pp]laceholder')
FILE_MAX, FUNCTION_MAX, KERNEL_MAX, COLUMNS_MAX = 800, 80, 120, 160
# Documents: bytes of one, bytes of all, columns. A longer .c file begins with what it is for, its guarantee, its thread.
DOCUMENT_MAX, DOCUMENTS_MAX, DOCUMENT_COLUMNS_MAX, HEADED_FROM = 40960, 225280, 120, 200

# Words for which the field has better ones (docs/glossary.md has those that are ours), in comments and documents.
PRIVATE = re.compile(r'\b(asked for|likewise|looked at|(first|second|third)-level cache|nobody|whoever|somebody)\b', re.I)


def files():
    out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], capture_output=True, text=True, check=True).stdout
    return sorted(f for f in set(out.split('\n')) if f and os.path.exists(f))


def includes(text):
    for number, line in enumerate(text, 1):
        m = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if m:
            yield number, m.group(1)


def check_layers(path, text, say):
    folder = path.split('/')[0]
    for number, name in includes(text):
        target = name.split('/')[0]
        if folder in MAY and target in MAY and target != folder and target not in MAY[folder]:
            say(path, number, f'{folder} may not include {target} ("{name}")')
        if folder == 'server' and target in MAY and target not in ('server', 'base') and name not in SERVER_SEES:
            say(path, number, f'server sees the engine through {sorted(SERVER_SEES)} only, not "{name}"')
        for header, place in DOORS:
            if re.match(header, name) and not re.match(place, path):
                say(path, number, f'"{name}" may be included only where {place}')


def check_header(path, text, say):
    if not path.endswith('.h') or path.startswith('tests/'):
        return
    if not text or not text[0].startswith('/*'):
        say(path, 1, 'a header begins with a comment that says what it is for')
    for number, name in includes(text):
        for header, _ in DOORS[:7]:
            if re.match(header, name) and path.split('/')[-1].split('_')[0] not in INTERNAL_HEADERS:
                say(path, number, f'third-party "{name}" in a header')


# Headers that stay inside one folder and may name its dependency's types.
INTERNAL_HEADERS = {'http', 'loop', 'internal', 'server', 'sse', 'pattern', 'conn', 'gate', 'fake', 'call', 'load', 'pcre', 'json', 'option'}


def check_lines(path, text, say):
    if len(text) > FILE_MAX:
        say(path, len(text), f'{len(text)} lines; a file has at most {FILE_MAX}')
    for number, line in enumerate(text, 1):
        if '\t' in line and not line.lstrip().startswith('"'):
            say(path, number, 'tab')
        if line.rstrip() != line:
            say(path, number, 'space at the end of the line')
        if len(line) > COLUMNS_MAX:
            say(path, number, f'{len(line)} columns; a line has at most {COLUMNS_MAX}')
        if WORDS.search(line):
            say(path, number, f'unfinished work: {line.strip()[:60]}')
        if not path.startswith('tests/') and re.match(r'static (?!const|inline|_Thread_local)[^()=;]*(=[^()]*)?;$', line) and not re.search(r'\bconst\b|_Atomic', line):
            say(path, number, f'file-static state: {line.strip()[:60]}')


def comments(text):
    """(number of its first line, words) of each comment, and of its lines where it has several."""
    code = '\n'.join(text)
    for m in re.finditer(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', code, re.S):
        if m.group().startswith('/'):
            first = code.count('\n', 0, m.start()) + 1
            yield first, re.sub(r'\s*\n\s*\*?\s*', ' ', m.group())


def check_comments(path, text, say):
    """A long file of the product begins with a comment; comments speak the field's words."""
    if path.startswith('tests/') or re.match(r'kernels/[^/]*$', path):
        return
    if path.endswith('.c') and len(text) > HEADED_FROM and not text[0].startswith('/*'):
        say(path, 1, f'{len(text)} lines; a .c above {HEADED_FROM} begins with what it is for, its guarantee and its thread')
    for number, comment in comments(text):
        for m in PRIVATE.finditer(comment):
            say(path, number, f"'{m.group()}' in a comment: name the thing, or use the field's word (docs/glossary.md)")


def check_documents(paths, say):
    """No document is long, all together are few, lines fit (but tables and links), words are the field's."""
    total = 0
    for path in paths:
        if not path.endswith('.md') or not os.path.exists(path):
            continue
        text = open(path, encoding='utf-8').read()
        size = len(text.encode())
        total += 0 if path.startswith(('models/', 'tests/')) else size
        if size > DOCUMENT_MAX:
            say(path, 1, f'{size} bytes; a document has at most {DOCUMENT_MAX}')
        for number, line in enumerate(text.split('\n'), 1):
            if len(line) > DOCUMENT_COLUMNS_MAX and not line.startswith('|') and '://' not in line:
                say(path, number, f'{len(line)} columns; a line of a document has at most {DOCUMENT_COLUMNS_MAX}')
            if PRIVATE.search(line):
                say(path, number, f"'{PRIVATE.search(line).group()}': name the thing, or use the field's word")
    if total > DOCUMENTS_MAX:
        say('docs', 0, f'{total} bytes; documents have at most {DOCUMENTS_MAX} together')


def check_functions(path, text, say):
    limit = KERNEL_MAX if path.startswith('kernels/') else FUNCTION_MAX
    begin = None
    for number, line in enumerate(text, 1):
        if line == '{' and number > 1 and re.search(r'\)\s*$|\)\s*\\?$', text[number - 2]):
            begin = number
        elif line == '}' and begin:
            if number - begin + 1 > limit:
                say(path, begin, f'a function of {number - begin + 1} lines; at most {limit}')
            begin = None


def check_arrays(texts, say):
    """No local array with values of structs that hold an array of structs: gcc 12 may clear bytes of them as padding (docs/adding.md)."""
    bare = {path: re.sub(r'/\*.*?\*/', lambda m: '\n' * m.group().count('\n'), '\n'.join(text), flags=re.S) for path, text in texts.items()}
    holders = {m.group(1) for code in bare.values() for m in re.finditer(r'struct (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}', code)
               if re.search(r'struct \w+ \w+\[|\} ?\w+\[', m.group(2))}
    for path, code in bare.items():
        for m in re.finditer(r'(static )?(?:const )?struct (\w+) \w+(?:\[[^\]]*\])+\s*(?:QR_UNINITIALIZED )?=\s*\{|()\((?:const )?struct (\w+)(?:\[[^\]]*\])+\)\s*\{', code):
            name = m.group(2) or m.group(4)
            if name in holders and not m.group(1) and code[:m.start()][-1:] != '\n':  # at a line's begin: of the file, not of a function
                say(path, code[:m.start()].count('\n') + 1, f'an array of struct {name}, which holds an array of structs, on the stack: gcc 12 may spoil its values; use single variables')


def check_folders(paths, say):
    doc = open('docs/architecture.md', encoding='utf-8').read() if os.path.exists('docs/architecture.md') else ''
    for folder in sorted({p.split('/')[0] for p in paths if p.endswith(('.c', '.h')) and '/' in p}):
        if not re.search(rf'`{folder}/?`', doc):
            say('docs/architecture.md', 1, f'does not say what `{folder}/` is for')


# The name that a heading has in a link: as GitHub makes them.
def anchor(heading):
    return ''.join(c for c in re.sub(r'[`*]', '', heading).strip().lower() if c.isalnum() or c in ' -_').replace(' ', '-')


def check_names(paths, say):
    """Files that documents name are there, where their folder is; x and NAME stand for any."""
    for page in paths:
        if not page.endswith('.md') or not os.path.exists(page):
            continue
        for number, line in enumerate(open(page, encoding='utf-8'), 1):
            for name in re.findall(r'`([\w./-]+/[\w-]+\.(?:cu?|h|py|sh|awk|cmake))`', line):
                if not re.search(r'(\b|_)x\.|NAME', name) and os.path.isdir(os.path.dirname(name)) and not os.path.exists(name):
                    say(page, number, f'names {name}, which is not there')


def check_links(paths, say):
    """Links between documents lead to files that exist and, behind #, to a heading there."""
    pages = {p: open(p, encoding='utf-8').read() for p in paths if p.endswith('.md') and os.path.exists(p)}
    anchors = {p: {anchor(h) for h in re.findall(r'(?m)^#+ (.*)$', text)} for p, text in pages.items()}
    for page, text in pages.items():
        for number, line in enumerate(text.split('\n'), 1):
            for link in re.findall(r'\]\(([^)\s]+)\)', line):
                if re.match(r'[a-z]+:', link):
                    continue
                path, _, name = link.partition('#')
                target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                if not os.path.exists(target):
                    say(page, number, f'a link to {target}, which is not there')
                elif name and name not in anchors.get(target, ()):
                    say(page, number, f'a link to a heading that {target} does not have: {name}')


def main():
    os.chdir(subprocess.run(['git', 'rev-parse', '--show-toplevel'], capture_output=True, text=True, check=True).stdout.strip())
    findings, n_lines, n_asserts = [], 0, 0
    say = lambda path, number, what: findings.append(f'{path}:{number}: {what}')
    paths = files()
    texts = {path: open(path, encoding='utf-8').read().split('\n')[:-1] for path in paths if path.endswith(('.c', '.h', '.cu'))}
    for path, text in texts.items():
        check_layers(path, text, say)
        check_header(path, text, say)
        check_lines(path, text, say)
        check_functions(path, text, say)
        check_comments(path, text, say)
        if path.endswith(('.c', '.cu')) and not path.startswith('tests/'):
            n_lines += len(text)
            n_asserts += sum('QR_ASSERT(' in line for line in text)
    check_arrays(texts, say)
    check_folders(paths, say)
    check_links(paths, say)
    check_names(paths, say)
    check_documents(paths, say)
    if n_lines and n_asserts * 1000 < n_lines * 15:
        say('.', 0, f'{n_asserts} assertions in {n_lines} lines of C; at least 15 per 1,000')
    print('\n'.join(findings) if findings else f'tidy: {len(paths)} files, {n_lines} lines of C, {n_asserts} assertions')
    print(f'{0 if findings else 1} passed, {1 if findings else 0} failed')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
