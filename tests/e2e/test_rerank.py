#!/usr/bin/env python3
"""Models that score pairs of texts: classifiers of three families and Qwen3-Reranker, against transformers (tools/golden/scores.py), and what they refuse.

Tolerance: logits of such models are within 1e-5 of those in double (tests/model/test_golden_families.c), and a sigmoid is a quarter as steep at most.
"""
import json
import math
import os
import tempfile

import score_models as models
from lib import Server, main, run

with open(os.path.join(os.path.dirname(__file__), 'golden_scores.json'), encoding='utf-8') as f:
    GOLDEN = json.load(f)
EXACT = ('--dtype', 'f32')
LOGIT, SCORE = 1e-5, 1e-5 / 4


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def scores(s, **body):
    status, answer = s.post('/v1/score', {'text_1': [q for q, _ in models.PAIRS], 'text_2': [d for _, d in models.PAIRS], **body})
    assert status == 200, answer
    return [x['score'] for x in answer['data']]


def near(found, want, bound):
    worst = max(abs(a - b) for a, b in zip(found, want))
    print(f'   worst difference {worst:.1e}')
    assert len(found) == len(want) and worst <= bound, (found, want)


def made(name, **more):
    d = tempfile.TemporaryDirectory()
    models.make(d.name, name, **more)
    return d


def counted(s, name):
    return sum(float(line.split()[-1]) for line in s.get('/metrics')[1].splitlines() if line.startswith(name + '{'))


def test_classifiers_score_as_transformers_does():
    for name in models.MODELS:
        if 'Classification' not in name:
            continue
        with made(name) as d, Server(*EXACT, model=d) as s:
            identity = 'sentence_transformers' in models.MODELS[name][1]
            want = GOLDEN[name] if identity else [sigmoid(x) for x in GOLDEN[name]]
            found = scores(s)
            near(found, want, LOGIT if identity else SCORE)
            near(scores(s, use_activation=False), GOLDEN[name], LOGIT)
            for (query, document), score in zip(models.PAIRS, found):
                status, answer = s.post('/v1/rerank', {'query': query, 'documents': [document, 'b', document]})
                assert status == 200 and [x['relevance_score'] for x in answer['results'] if x['index'] != 1] == [score, score], (answer, score)
            assert 'a classifier of one label' in s.stderr() and '/v1/rerank' in s.stderr()


def test_a_classifier_makes_no_text_and_no_vectors():
    name = 'Qwen3ForSequenceClassification'
    with made(name) as d:
        with Server(model=d) as s:
            for path, body in (('/v1/completions', {'prompt': 'a'}), ('/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'a'}]}),
                               ('/v1/embeddings', {'input': 'a'})):
                status, answer = s.post(path, body)
                assert status == 400 and answer['error']['param'] == 'model' and '/v1/rerank' in answer['error']['message'], (path, answer)
        for args in (('check', d), ('plan', '--model', d)):
            rc, out, err = run(*args)
            assert rc == 0 and 'a classifier of one label' in out and 'unused' not in out, (out, err)
        rc, out, err = run('generate', '--model', d, '--prompt', 'a')
        assert rc == 4 and '/v1/rerank' in err, (rc, err)
        rc, out, err = run('serve', '--model', d, '--port', '0', '--reranker', 'yes-no')
        assert rc == 2 and 'classifier' in err, (rc, err)
        small = os.path.join(d, 'small')
        rc, out, err = run('quantize', d, small, '--type', 'int8')
        assert rc == 0, err
        with Server(model=small) as s:
            near(scores(s), [sigmoid(x) for x in GOLDEN[name]], 0.05)  # weights of 8 bits move them; another row of weights would by more
    with made(name, labels=3) as d:
        rc, out, err = run('check', d)
        assert rc == 4 and '[3, 64]' in out and '[1, 64]: a classifier of one label' in out, out


def test_a_reranker_answers_yes_as_often_as_transformers_does_however_it_is_recognised():
    name, found = 'Qwen3ForCausalLM', []
    stage = [{'idx': 0, 'name': '0', 'path': '', 'type': 'sentence_transformers.base.modules.transformer.Transformer'},
             {'idx': 1, 'name': '1', 'path': '1_LogitScore', 'type': 'sentence_transformers.cross_encoder.modules.logit_score.LogitScore'}]
    words = models.tokenizer(None)['model']['vocab']
    for how in ('overrides', 'stage', 'option'):
        with made(name, **({'architectures': ['Qwen3ForSequenceClassification'], **models.ASKED} if how == 'overrides' else {})) as d:
            if how == 'stage':
                os.mkdir(os.path.join(d, '1_LogitScore'))
                for file, content in (('modules.json', stage), ('1_LogitScore/config.json', {'true_token_id': words['yes'], 'false_token_id': words['no']})):
                    with open(os.path.join(d, file), 'w', encoding='utf-8') as out:
                        json.dump(content, out)
            with Server(*EXACT, *(('--reranker', 'yes-no') if how == 'option' else ()), model=d) as s:
                found.append(scores(s))
                status, answer = s.post('/v1/rerank', {'query': models.PAIRS[-1][0], 'documents': [models.PAIRS[-1][1]], 'instruction': models.INSTRUCTION})
                assert status == 200, answer
                near([answer['results'][0]['relevance_score']], [GOLDEN['instruction']], SCORE)
                assert s.post('/v1/completions', {'prompt': 'a', 'max_tokens': 1})[0] == 200 and 'Qwen3-Reranker' in s.stderr()
            if how != 'option':
                assert 'Qwen3-Reranker' in run('check', d)[1]
    near(found[0], GOLDEN[name], SCORE)
    assert found[0] == found[1] == found[2]


def test_scores_do_not_depend_on_the_batch_and_the_shared_beginning_is_computed_once():
    with made('Qwen3ForCausalLM', **models.ASKED) as d, Server(model=d) as s:
        documents = [f'Cat {i} sleeps on {i * i} mats. ' * (i % 5 + 1) for i in range(40)]
        queries, hits = counted(s, 'vllm:prefix_cache_queries_total'), counted(s, 'vllm:prefix_cache_hits_total')
        status, answer = s.post('/v1/rerank', {'query': 'Which cat sleeps?', 'documents': documents, 'top_n': 0})
        assert status == 200, answer
        queries, hits = counted(s, 'vllm:prefix_cache_queries_total') - queries, counted(s, 'vllm:prefix_cache_hits_total') - hits
        together = {x['index']: x['relevance_score'] for x in answer['results']}
        lone = answer['usage']['prompt_tokens'] - hits
        print(f'   {hits:.0f} of {queries:.0f} tokens were there, {lone:.0f} were computed')
        assert queries == answer['usage']['prompt_tokens'] and hits >= 39 * 200, (queries, hits)  # the prompt is 241 bytes of markers and instruction
        for i in (0, 7, 39):
            status, answer = s.post('/v1/rerank', {'query': 'Which cat sleeps?', 'documents': documents[i]})
            assert status == 200 and answer['results'][0]['relevance_score'] == together[i], (i, answer)
    with made('Qwen3ForCausalLM', **models.ASKED) as d, Server('--no-prefix-cache', model=d) as s:
        status, answer = s.post('/v1/rerank', {'query': 'Which cat sleeps?', 'documents': documents})
        assert {x['index']: x['relevance_score'] for x in answer['results']} == together


def test_other_models_say_why_they_score_nothing():
    for more, word in (({}, '--reranker yes-no'), ({'architectures': ['Qwen3ForSequenceClassification'], 'classifier_from_token': ['0', '1']}, 'classifier_from_token')):
        with made('Qwen3ForCausalLM', **more) as d, Server(model=d) as s:
            for path, body in (('/v1/rerank', {'query': 'a', 'documents': ['b']}), ('/v1/score', {'text_1': 'a', 'text_2': 'b'})):
                status, answer = s.post(path, body)
                assert status == 400 and answer['error']['param'] == 'model' and word in answer['error']['message'], answer


if __name__ == '__main__':
    main(globals())
