"""What the checks against other people's programs (check_embeddings.py, check_families.py, check_gguf.py, check_peft.py) share."""
import argparse
import os

import torch
import transformers


class Report:
    def __init__(self):
        self.failed = False

    def compare(self, what, found, expected, bound):
        """Largest difference, as a share of the largest number expected."""
        found, expected = torch.as_tensor(found, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
        difference = float((found - expected).abs().max() / expected.abs().max())
        self.failed |= not difference <= bound
        print(f"  {'ok  ' if difference <= bound else 'FAIL'} {what}: {difference:.2e}, expected at most {bound:.2e}")


def arguments(doc, *libraries):
    """--quire, --models, --threads; says which libraries quire is held against."""
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--quire", default="build/quire")
    p.add_argument("--models", required=True, help="a directory of model directories with tokenizers")
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(", ".join(f"{lib.__name__} {lib.__version__}" for lib in (*libraries, transformers, torch)))
    return args


def models(folder):
    """The model directories in a folder."""
    for name in sorted(os.listdir(folder)):
        path = os.path.abspath(os.path.join(folder, name))
        if all(os.path.exists(os.path.join(path, f)) for f in ("config.json", "model.safetensors", "tokenizer.json")):
            yield path


def of_spread(found, expected):
    """Largest difference, as a share of the standard deviation of what is expected."""
    found, expected = torch.as_tensor(found, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    return float((found - expected).abs().max() / expected.std()) if found.shape == expected.shape else float("inf")


def random_model(architecture, config, seed):
    """A class of transformers and a model of it, of large random weights, whose norms differ from 1."""
    cls = getattr(transformers, architecture)
    torch.manual_seed(seed)
    model = cls(cls.config_class(**config))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or ".ln_" in name:
                p.add_(torch.randn_like(p) * 0.2)
            else:
                p.copy_(torch.randn_like(p) * 0.15)
    return cls, model
