#!/usr/bin/env python3
"""Random models of every GGUF family, made by llama.cpp's own converter, against llama.cpp and the transformers library.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers sentencepiece
    /tmp/peers/bin/python tools/check_gguf.py --llama LLAMA_CPP --says llama_says --quire build/quire --seed 1 --models 40

LLAMA_CPP is a source tree of llama.cpp (its converter is used) with llama-quantize in build/bin; how llama_says is built stands in tools/peers/llama_says.c. An optional check, as
check_families.py, from which the configurations come; nothing builds or tests with it. Each becomes a model of random weights in a directory, with a small tokenizer trained on the spot. The
converter makes a GGUF file of it in F32, F16, BF16 or Q8_0, whole or in parts, with q, k and v in one tensor or three; llama-quantize makes the other types. The logits behind POSITIONS prefixes of
random ids are compared: transformers in double on the directory, llama.cpp on the file in F32 (of a quantized one: as llama-quantize turns it back), quire on the directory and on the
file. So are the ids of some texts, with and without what texts begin and end with. What files do not say (GGUF has no keys for some settings) is not drawn.

A difference is a share of the standard deviation of the logits. Ends with status 1 when quire's logits of a file differ by more than BOUND from transformers' (llama.cpp's of one quantized), or ids
do. Where llama.cpp differs from transformers and quire does not, that is printed, and no failure. The last lines are a table: the largest differences of a family and a type of file.
"""
import argparse
import importlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

os.environ.update(TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
import sentencepiece
import tokenizers
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

import check_families as families
from checks import of_spread, random_model

# f32 against double through a few layers. Of a quantized file llama.cpp is what there is to compare with, whose tables of exponentials and tangents (gelu's) are in f16. As they are stored, codes are
# multiplied by activations rounded to 8 bits (1/254 of the largest of a group, bf16: 1/512 of each) and keys and values are kept in bf16: three times what the same numbers in bf16 give.
BOUND = {True: 2e-4, False: 5e-3}
ROUGHER = 3
PLAIN = ("F32", "F16", "BF16")
BY_CONVERTER = (*PLAIN, "Q8_0")
BY_QUANTIZE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS")
IDS, STEP = 60, 5
PIECES = 420
TEXTS = ("", "Hello world", "  two  spaces, and a tab\t.", "I'll say: it's 12345 o'clock\n\n\nWE'RE", "Grüße aus Köln, Привет 你好 こんにちは \U0001f999\U0001f680", "x = {'a': [1,2.50]}; // ok!!\r\n",
         "<s>begun</s> and <|end|>ended", "éé naïve \u00a0 no-break", "-- ... ---- '''''' \"\"\"", " leading", "trailing ", "\n", "camelCaseWordsHTTPServer2Go", "ab12cd3456789ef", "ﬁ ½ ① ﷺ")
PRES = ("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "refact", "stablelm2", "default", "deepseek-llm", "deepseek-coder", "deepseek-v3", "dbrx", "falcon", "starcoder", "command-r")
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe")  # where an error may choose another expert
PIECE_FAMILIES = ("gemma", "gemma2", "phi3")  # whose converters take nothing else
OF_EITHER = ("llama", "mistral", "mixtral", "gemma3")
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"


# ---- configurations ----

def rotation(r):
    """Kinds that the converter has keys or tensors for."""
    kind = r.choice(("default", "linear", "llama3", "yarn"))
    d = {"rope_type": kind, "rope_theta": r.choice((100.0, 10000.0, 500000.0))}
    if kind == "linear":
        d["factor"] = r.choice((2.0, 4.0))
    elif kind == "llama3":
        d.update(factor=r.choice((4.0, 8.0, 32.0)), low_freq_factor=1.0, high_freq_factor=r.choice((2.0, 4.0)), original_max_position_embeddings=r.choice((16, 32, 8192)))
    elif kind == "yarn":
        d.update(factor=r.choice((2.0, 4.0, 8.0)), original_max_position_embeddings=r.choice((16, 32)))
        d.update(r.choice(({}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 1.1})))
    return d


def longrope(r, config):
    head = config["hidden_size"] // config["num_attention_heads"]
    share = r.choice((0.5, 1.0)) if head % 4 == 0 else 1.0
    n = int(head * share) // 2
    return {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": share, "original_max_position_embeddings": r.choice((16, config["max_position_embeddings"])),
            "short_factor": [round(r.uniform(1, 1.5), 3) for _ in range(n)], "long_factor": [round(r.uniform(1, 8), 3) for _ in range(n)]}


def said(r, name, config):
    """The configuration without what the converter leaves out or cannot read."""
    c = dict(config)
    for field in ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "mlp_only_layers", "decoder_sparse_step", "no_rope_layers", "no_rope_layer_interval"):
        if name not in ("gemma2", "gemma3", "phi3") or field == "layer_types":
            c.pop(field, None)
    if name in ("llama", "mistral", "smollm3", "mixtral"):
        c["rope_parameters"] = rotation(r)
    elif name in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "granite") and c["rope_parameters"]["rope_type"] not in ("default", "linear"):
        c["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32}
    if name == "gemma":
        c["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    if name in ("gemma2", "gemma3"):
        c.update(num_hidden_layers=r.choice((3, 7)), query_pre_attn_scalar=c["head_dim"], final_logit_softcapping=r.choice((3.0, 30.0)), tie_word_embeddings=True, attention_bias=False)
    if name == "gemma2":
        c["attn_logit_softcapping"] = r.choice((2.0, 50.0))
    if name == "phi3":
        c["rope_parameters"] = r.choice((longrope(r, c), {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}))
        c["original_max_position_embeddings"] = c["rope_parameters"].get("original_max_position_embeddings", c["max_position_embeddings"])
    if name == "smollm3":
        c["num_hidden_layers"] = r.choice((3, 5))
    if name == "stablelm":
        c["rope_parameters"]["rope_theta"] = 10000.0
        c["tie_word_embeddings"] = False
    if name in ("gemma", "gpt2"):
        c["tie_word_embeddings"] = True
    if name == "gpt2":
        c.update(n_inner=None, tie_word_embeddings=True, activation_function="gelu_new")
    if name.startswith("gemma"):
        c.update(hidden_size=64, num_attention_heads=r.choice((2, 4, 8)), num_key_value_heads=r.choice((1, 2)))  # a width whose root bf16 has
    if name in ("qwen2_moe", "qwen3_moe"):
        c["norm_topk_prob"] = name == "qwen3_moe"
    c["vocab_size"] = PIECES + r.choice((0, 12))
    return c


def widened(r, name, c):
    """Rows long enough for blocks of 256."""
    if name == "gpt2":
        return {**c, "n_embd": 256, "n_head": r.choice((2, 4)), "n_layer": 2}
    n = r.choice((2, 4, 8))
    c = {**c, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": n, "num_key_value_heads": r.choice((1, 2)), "num_hidden_layers": min(c["num_hidden_layers"], 3)}
    if "head_dim" in c:
        c["head_dim"] = r.choice((32, 64))
    for field in ("moe_intermediate_size", "shared_expert_intermediate_size"):
        if field in c:
            c[field] = 256
    if "query_pre_attn_scalar" in c:
        c["query_pre_attn_scalar"] = c["head_dim"]
    for field in ("attention_factor", "beta_fast", "beta_slow"):  # which llama.cpp, all there is to compare with, does not read
        c.get("rope_parameters", {}).pop(field, None)
    if name == "phi3":
        c["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
        c["original_max_position_embeddings"] = c["max_position_embeddings"]
    return c


# ---- models in directories ----

def corpus():
    here = Path(__file__).resolve().parent.parent
    return [line for name in ("README.md", "docs/architecture.md") for line in (here / name).read_text(encoding="utf-8").splitlines() if line.strip()] + [t for t in TEXTS if t.strip()] * 20


def train_pieces(path, gemma):
    ids = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3} if gemma else {"unk_id": 0, "bos_id": 1, "eos_id": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_prefix=str(path), vocab_size=PIECES, model_type="bpe", byte_fallback=True, character_coverage=0.98,
                                             normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, minloglevel=2, allow_whitespace_only_pieces=True,
                                             control_symbols=["<|end|>", "<|endoftext|>", "<|user|>"], **ids)


def train_bytes(path):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(corpus(), tokenizers.trainers.BpeTrainer(vocab_size=PIECES, initial_alphabet=alphabet, special_tokens=["<unk>", "<s>", "</s>", "<|end|>", "<|endoftext|>"], show_progress=False))
    t.save(str(path))


def put_tokenizer(r, name, where, made):
    """Of pieces or bytes; returns the special tokens' ids."""
    pieces = name in PIECE_FAMILIES or (name in OF_EITHER and r.random() < 0.5)
    kind = ("gemma" if name.startswith("gemma") else "pieces") if pieces else "bytes"
    path = made / f"tokenizer-{kind}"
    if not path.exists():
        path.mkdir()
        if pieces:
            train_pieces(path / "tokenizer", kind == "gemma")
            os.remove(path / "tokenizer.vocab")
        else:
            train_bytes(path / "tokenizer.json")
    for f in path.iterdir():
        shutil.copy(f, where)
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    config["tokenizer_class"] = "LlamaTokenizer" if pieces else "PreTrainedTokenizerFast"
    for flag in ("add_bos_token", "add_eos_token"):
        if r.random() < 0.5:
            config[flag] = r.random() < 0.5
    (Path(where) / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def rounded(model, where, cls, dtype, experts):
    """Weights of matrices as the type has them, in double."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(p.to(dtype).float())
    model.save_pretrained(where)
    more = {"experts_implementation": "eager"} if experts else {}
    return cls.from_pretrained(where, dtype=torch.float32, **more).double().eval()


def saved(architecture, config, seed, where, kind):
    cls, model = random_model(architecture, config, seed)
    model = rounded(model, where, cls, {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32), "num_experts_per_tok" in config)
    path = Path(where) / "config.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    if "n_positions" in told:
        told["n_ctx"] = told["n_positions"]
    path.write_text(json.dumps(told), encoding="utf-8")
    return model


# ---- other programs ----

class Llama:
    """llama.cpp: its converter in this process, its other programs beside."""
    def __init__(self, tree, says):
        sys.path[:0] = [tree, os.path.join(tree, "gguf-py")]
        self.conversion = importlib.import_module("conversion")
        self.gguf = importlib.import_module("gguf")
        self.says, self.quantizer = says, os.path.join(tree, "build", "bin", "llama-quantize")
        self.pre = "gpt-2"
        logging.disable(logging.WARNING)
        self.conversion.TextModel.get_vocab_base_pre = lambda model, tokenizer: self.pre

    def convert(self, where, out, kind, options, vocabulary=True):
        c = self.conversion
        hparams = c.ModelBase.load_hparams(Path(where), False)
        cls = c.get_model_class(c.get_model_architecture(hparams, c.ModelType.TEXT), mmproj=False)
        types = self.gguf.LlamaFileType
        with torch.inference_mode():
            model = cls(Path(where), types.ALL_F32 if kind == "F32" else getattr(types, "MOSTLY_" + kind), Path(out), **options)
            if not vocabulary:
                model.set_vocab = lambda: model.gguf_writer.add_tokenizer_model("no_vocab")
            model.write()

    def quantize(self, source, out, kind):
        done = subprocess.run([self.quantizer, "--allow-requantize", source, out, kind, "1"], capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    def round_table(self, path):
        """A table of embeddings that no head shares is kept in bf16, where its file has codes."""
        tensors = {t.name: t.data for t in self.gguf.GGUFReader(path, "r+").tensors}
        if "output.weight" in tensors:
            table = tensors["token_embd.weight"]
            table[:] = torch.from_numpy(table.copy()).bfloat16().float().numpy()
            table.flush()

    def ask(self, path, context, lines):
        done = subprocess.run([self.says, path, str(context)], input="".join(s + "\n" for s in lines), capture_output=True, text=True, timeout=300, check=False)
        return (done.stdout.splitlines(), None) if done.returncode == 0 else (None, " / ".join(done.stderr.strip().splitlines()) or "failed")

    def logits(self, path, context, prompts):
        said_, why = self.ask(path, context, ["logits " + " ".join(map(str, ids)) for ids in prompts])
        return ([[float(x) for x in line.split()] for line in said_], None) if said_ else (None, why)

    def tokens(self, path, special):
        said_, why = self.ask(path, "vocabulary", [f"{'special' if special else 'tokens'} {t.encode().hex()}" for t in TEXTS])
        return [[int(x) for x in line.split()] for line in said_] if said_ else why


def quire(program, verb, where, lines, *more):
    done = subprocess.run([program, verb, "--model", where, *more], input="".join(json.dumps(s) + "\n" for s in lines), capture_output=True, text=True, timeout=300, check=False)
    return ([json.loads(s) for s in done.stdout.splitlines()], None) if done.returncode == 0 else (None, done.stderr.strip())


def quire_logits(program, where, prompts, isa, dtype="f32"):
    said_, why = quire(program, "score", where, [{"ids": ids} for ids in prompts], "--logits", "--dtype", dtype, "--device", "cpu", "--isa", isa, "-t", "1")
    return ([s["logits"] for s in said_], None) if said_ else (None, why)


# ---- one model ----

class Outcome:
    def __init__(self):
        self.worst, self.count, self.wrong = {}, {}, False

    def note(self, verdict, text):
        self.count[verdict] = self.count.get(verdict, 0) + 1
        self.wrong |= verdict == "WRONG"
        print(f"{verdict} {text}", flush=True)

    def difference(self, family, kind, pair, value):
        key = (family, kind, pair)
        self.worst[key] = max(self.worst.get(key, 0), value)

    def table(self):
        pairs = ("quire file/transformers", "quire file/llama.cpp", "quire as stored/llama.cpp", "quire in bf16/llama.cpp", "quire directory/transformers", "llama.cpp/transformers")
        print("family type " + " | ".join(pairs))
        for family, kind in sorted({k[:2] for k in self.worst}):
            print(family, kind, " | ".join(f"{self.worst[family, kind, p]:.1e}" if (family, kind, p) in self.worst else "-" for p in pairs))


def check_ends(llama, program, path):
    """Whether quire knows the tokens that begin and end texts, and the template of chats."""
    facts, why = llama.ask(path, "vocabulary", ["known"])
    if facts is None:
        return f"llama.cpp: {why}"
    bos, eos, eot = map(int, facts[0].split()[:3])
    done = subprocess.run([program, "check", path, "--json"], capture_output=True, text=True, check=False)
    config = json.loads(done.stdout)["config"]
    ends = config["eos_token_id"] if isinstance(config["eos_token_id"], list) else [config["eos_token_id"]]
    if config.get("bos_token_id") != bos or eos not in ends or (eot >= 0 and eot not in ends):
        return f"quire has {config.get('bos_token_id')} and {ends}, llama.cpp {bos}, {eos} and {eot}"
    got, why = quire(program, "template", path, [{"messages": [{"role": "user", "content": "hi"}]}])
    return None if got and got[0].get("text") == "<|user|>hi<|end|>" else f"template: {why or got[0]}"


def check_tokens(llama, program, path):
    """What differs, or None."""
    for special in (False, True):
        want = llama.tokens(path, special)
        if isinstance(want, str):
            return f"llama.cpp: {want}"
        got, why = quire(program, "tokenize", path, [{"text": t, "add_special_tokens": special} for t in TEXTS])
        if got is None:
            return why
        for text, a, b in zip(TEXTS, got, want):
            if a["ids"] != b:
                return f"{text!r} (special: {special}): quire {a['ids']}, llama.cpp {b}"
    return check_ends(llama, program, path)


def make_file(r, llama, where, kind):
    """(file, the same in F32, what it is)."""
    beside = where + ".gguf"
    os.mkdir(beside)
    source = os.path.join(beside, "F32.gguf")
    options = {"fuse_qkv": r.random() < 0.3, **({"split_max_tensors": 7, "small_first_shard": r.random() < 0.5} if kind == "F32" and r.random() < 0.3 else {})}
    llama.pre = r.choice(PRES)
    llama.convert(where, source, "F32", options)
    if "split_max_tensors" in options:
        source = os.path.join(beside, sorted(f for f in os.listdir(beside) if "-00001-of-" in f)[0])
    if kind == "F32":
        return source, source, options
    out = os.path.join(beside, kind + ".gguf")
    if kind in BY_CONVERTER:
        llama.convert(where, out, kind, options)
    else:
        why = llama.quantize(source, out, kind)
        if why:
            return None, None, why
    if kind in PLAIN:
        return out, source, options
    back = os.path.join(beside, "back.gguf")
    why = llama.quantize(out, back, "F32") or llama.round_table(back)
    return (None, None, why) if why else (out, back, options)


def check(args, llama, r, seed, folder, outcome):
    family = r.choice([f for f in families.FAMILIES if not args.family or f.__name__ in args.family])
    name, kind = family.__name__, args.type or r.choice((*BY_CONVERTER, r.choice(BY_QUANTIZE)))
    architecture, config = family(r)
    config = said(r, name, config)
    if kind not in PLAIN:
        config = widened(r, name, config)
    where = os.path.join(folder, f"{name}-{seed}")
    what = f"{name} {kind} seed {seed}"
    try:
        model = saved(architecture, config, seed, where, kind)
    except (ValueError, TypeError, StrictDataclassError) as e:
        return outcome.note("skipped", f"{what}: {' '.join(str(e).split())[:160]}")
    put_tokenizer(r, name, where, Path(folder))
    path, plain, options = make_file(r, llama, where, kind)
    if path is None:
        return outcome.note("skipped", f"{what}: llama-quantize: {options}")
    ids = [r.randrange(PIECES) for _ in range(IDS)]
    least = config.get("original_max_position_embeddings", 0) if config.get("rope_parameters", {}).get("rope_type") == "longrope" else 0
    prompts = [ids[:n] for n in range(1 + (least if least < config.get("max_position_embeddings", 0) else 0), IDS + 1, STEP)]  # transformers rotates by the shorter factors below that
    with torch.no_grad():
        want = [model(torch.tensor([p])).logits[0, -1].tolist() for p in prompts]
    known, llama_why = llama.logits(plain, args.context, prompts)
    got, refusal = quire_logits(args.quire, path, prompts, args.isa)
    tokens = check_tokens(llama, args.quire, path)
    if tokens:
        outcome.note("WRONG", f"{what}, {llama.pre}: tokens: {tokens}: {path}")
    if refusal:
        return outcome.note("refused", f"{what}: {refusal} ({options})")
    if llama_why:
        outcome.note("not by llama.cpp", f"{what}: {llama_why}")
    return judge(args, outcome, (name, kind, what, path, plain), where, (got, known, want), prompts)


def judge(args, outcome, names, where, logits, prompts):
    name, kind, what, path, plain = names
    got, known, want = logits
    width = len(got[0])  # converters cut rows that no token has
    want = [row[:width] for row in want]
    own, _ = quire_logits(args.quire, where, prompts, args.isa) if kind in PLAIN else (None, None)
    found = {}
    if kind in PLAIN:
        found["quire file/transformers"] = of_spread(got, want)
        if own:
            found["quire directory/transformers"] = of_spread([row[:width] for row in own], want)
    if known:
        found["quire file/llama.cpp"] = of_spread(got, known)
        if kind in PLAIN:
            found["llama.cpp/transformers"] = of_spread(known, want)
        else:
            for pair, file, dtype in (("quire as stored/llama.cpp", path, "auto"), ("quire in bf16/llama.cpp", plain, "bf16")):
                rough, _ = quire_logits(args.quire, file, prompts, args.isa, dtype)
                found[pair] = of_spread(rough, known) if rough else float("inf")
    for pair, value in found.items():
        outcome.difference(name, kind, pair, value)
    if not found:
        return outcome.note("not compared", what)
    said_ = ", ".join(f"{p} {v:.1e}" for p, v in found.items())
    judged = found.get("quire file/transformers" if kind in PLAIN else "quire file/llama.cpp", 0)
    bound = BOUND[kind in PLAIN]
    rough = 0 if name in EXPERTS else found.get("quire as stored/llama.cpp", 0)
    if not (judged <= bound and rough <= ROUGHER * found.get("quire in bf16/llama.cpp", 0)):
        outcome.note("WRONG", f"{what}: {said_}: {where}")
    elif found.get("llama.cpp/transformers", 0) > 20 * bound:
        outcome.note("llama.cpp differs", f"{what}: {said_}")
    else:
        outcome.note("same", f"{what}: {said_}")
        shutil.rmtree(where)
        shutil.rmtree(where + ".gguf")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", required=True)
    parser.add_argument("--says", required=True)
    parser.add_argument("--quire", default="build/quire")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--family", action="append")
    parser.add_argument("--type", choices=(*BY_CONVERTER, *BY_QUANTIZE))
    parser.add_argument("--isa", default="avx2")
    parser.add_argument("--context", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    llama, outcome = Llama(args.llama, args.says), Outcome()
    folder = tempfile.mkdtemp(prefix="quire-gguf-")
    for i in range(args.models):
        try:
            check(args, llama, random.Random(args.seed * 100000 + i), args.seed * 100000 + i, folder, outcome)
        except Exception:  # of the converter's; the others are to be seen all the same
            outcome.note("failed", f"model {i}: {' '.join(traceback.format_exc().split())[-700:]}")
    outcome.table()
    print(f"seed {args.seed}: " + ", ".join(f"{n} {v}" for v, n in sorted(outcome.count.items())))
    if not outcome.wrong:
        shutil.rmtree(folder)
    sys.exit(outcome.wrong)


if __name__ == "__main__":
    main()
