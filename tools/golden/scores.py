#!/usr/bin/env python3
"""Scores of pairs of texts by the models of tests/e2e/score_models.py, computed by transformers in double precision.

Writes tests/e2e/golden_scores.json. Needs PyTorch and transformers, in an environment of its own:
    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers
    /tmp/golden/bin/python tools/golden/scores.py tests/e2e
Classifiers take what their tokenizer makes of two texts; a causal model is asked as Qwen3-Reranker's model card has it.
"""
import json
import os
import sys
import tempfile

import torch
import transformers

USUAL = 'Given a web search query, retrieve relevant passages that answer the query'
BEFORE = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be '
          '"yes" or "no".<|im_end|>\n<|im_start|>user\n')
BEHIND = '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'


def asked(model, tokenizer, query, document, instruction):
    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False)
    prompt = ids(BEFORE) + ids(f'<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}') + ids(BEHIND)
    row = model(torch.tensor([prompt])).logits[0, -1]
    pair = torch.stack([row[tokenizer.convert_tokens_to_ids(w)] for w in ('no', 'yes')])
    return torch.softmax(pair, 0)[1].item()


def main(where):
    sys.path.insert(0, where)
    import score_models as m  # pylint: disable=import-outside-toplevel,import-error
    found = {'made by': f'tools/golden/scores.py with transformers {transformers.__version__} and PyTorch {torch.__version__}'}
    for name in m.MODELS:
        with tempfile.TemporaryDirectory() as d, torch.no_grad():
            m.make(d, name)
            tokenizer = transformers.AutoTokenizer.from_pretrained(d)
            if 'Classification' in name:
                model = transformers.AutoModelForSequenceClassification.from_pretrained(d, dtype=torch.float32).double().eval()
                found[name] = [model(**tokenizer(q, t, return_tensors='pt', return_token_type_ids=False)).logits.item() for q, t in m.PAIRS]
                continue
            model = transformers.AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32).double().eval()
            found[name] = [asked(model, tokenizer, q, t, USUAL) for q, t in m.PAIRS]
            found['instruction'] = asked(model, tokenizer, *m.PAIRS[-1], m.INSTRUCTION)
    with open(os.path.join(where, 'golden_scores.json'), 'w', encoding='utf-8') as f:
        json.dump(found, f, indent=1)
        f.write('\n')


if __name__ == '__main__':
    main(sys.argv[1])
