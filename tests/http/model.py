"""The smallest model directory that the mock server can serve text with: a byte-level tokenizer and a chat template, made on the spot."""
import atexit
import json
import os
import shutil
import tempfile

MERGES = "t h, h e, i n, e r, a n, r e, q u, o w, Ġ t, Ġ o"
SPECIAL = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = """{%- if messages[0].role == 'assistant' %}{{ raise_exception('the first message must not be the assistant\\'s') }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.content is string %}{{ m.content }}{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}
{%- for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}
{%- if not (loop.last and continue_final_message) %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if tools %}{{ tools | length }} tools{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def byte_alphabet():
    """The characters that stand for the 256 bytes: printable ones for themselves, the others from U+0100 on, in the bytes' order."""
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    others = iter(range(0x100, 0x200))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def tokenizer():
    pairs = [pair.split(" ") for pair in MERGES.split(", ")]
    words = byte_alphabet() + [a + b for a, b in pairs]
    ids = {s: len(words) + i for i, s in enumerate(SPECIAL)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bos, (text, other) = {"SpecialToken": {"id": SPECIAL[0], "type_id": 0}}, ({"Sequence": {"id": i, "type_id": 0}} for i in "AB")
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": s, **flags} for s, i in ids.items()],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "post_processor": {"type": "TemplateProcessing", "single": [bos, text], "pair": [text, other],
                           "special_tokens": {SPECIAL[0]: {"id": SPECIAL[0], "ids": [ids[SPECIAL[0]]], "tokens": [SPECIAL[0]]}}},
        "model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)}, "merges": pairs},
    }


def make(template=TEMPLATE):
    """A new temporary directory with the model's files; gone when the process ends."""
    path = tempfile.mkdtemp(prefix="quire-http-model-")
    atexit.register(shutil.rmtree, path, True)
    config = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast",
              "model_max_length": 4096}
    for name, content in (("tokenizer.json", tokenizer()), ("tokenizer_config.json", config)):
        with open(os.path.join(path, name), "w", encoding="utf-8") as f:
            json.dump(content, f)
    return path
