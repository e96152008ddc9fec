#!/usr/bin/env python3
"""Data to train on, as scripts make it: a tokenizer from text, shards from text and conversations, a look at them."""
import json
import os
import signal
import subprocess
import tempfile
import time

from lib import DATA, QUIRE, ROOT, SLOW, main, need_data, run, run_lines

TEXT = os.path.join(DATA, 'text', 'tinyshakespeare.txt')
CHATTY = os.path.join(ROOT, 'models', 'quire-tiny')
CHATS = [{'messages': [{'role': 'user', 'content': f'What is {a} + {b}?'}, {'role': 'assistant', 'content': f'{a + b}.'}]} for a in range(5) for b in range(8)]


def put_lines(path, lines):
    with open(path, 'w', encoding='utf-8') as f:
        f.writelines(json.dumps(l) + '\n' for l in lines)
    return path


def test_a_tokenizer_learnt_from_text_gives_text_back_and_prepares_conversations():
    need_data(TEXT)
    with tempfile.TemporaryDirectory() as d:
        tok, out, chats = d + '/tok', d + '/data', put_lines(d + '/c.jsonl', CHATS)
        rc, stdout, err = run('data', 'train-tokenizer', '--vocab-size', '600', '--cut', 'qwen2', '--chat-template', 'chatml', '--out', tok, TEXT, chats)
        assert rc == 0 and '600 tokens' in stdout, (rc, stdout, err)
        text = open(TEXT, encoding='utf-8').read()[:20000] + ' caf\u00e9 \u4e2d\u6587 <|im_end|>'
        ids = run_lines('tokenize', '--model', tok, lines=[{'text': text}])
        assert len(ids[0]['ids']) < len(text) / 1.8
        assert run_lines('detokenize', '--model', tok, lines=ids)[0]['text'] == text
        rc, stdout, err = run('data', 'prepare', '--model', tok, '--out', out, '--eval-fraction', '0.25', chats)
        assert rc == 0 and err == '' and '40 conversations with 40 answers' in stdout, (rc, stdout, err)
        rc, stdout, err = run('data', 'show', out, '--docs', '1')
        assert rc == 0 and '<|im_start|>assistant\n[[' in stdout and '.<|im_end|>]]' in stdout, (rc, stdout, err)
        n = [json.loads(run('data', 'show', where, '--json')[1])['n_docs'] for where in (out, out + '/eval')]
        assert sum(n) == 40 and n[1] > 0, n
        rc, _, err = run('data', 'prepare', '--model', tok, '--out', out, chats)
        assert rc == 2 and '--replace' in err, (rc, err)
        rc, _, err = run('data', 'show', out, '--model', os.path.join(DATA, 'models', 'stories260K'))
        assert rc != 0 and 'another tokenizer' in err, (rc, err)


def test_what_is_wrong_is_named_by_file_and_line_and_nothing_is_left():
    need_data()
    model = os.path.join(DATA, 'models', 'stories260K')
    with tempfile.TemporaryDirectory() as d:
        bad = put_lines(d + '/bad.jsonl', [{'text': 'good'}, {'txt': 'bad'}])
        unanswered = put_lines(d + '/asked.jsonl', [{'messages': c['messages'][:1]} for c in CHATS])
        for args, words, status in ((('prepare', '--model', model, '--out', d + '/o', bad), ('bad.jsonl:2', '"text"', '"messages"'), 1),
                                    (('prepare', '--model', model, '--out', d + '/o', d + '/none.txt'), ('none.txt', 'ENOENT'), 4),
                                    (('prepare', '--model', '/no/such', '--out', d + '/o', bad), ('/no/such',), 4),
                                    (('prepare', '--model', os.path.join(DATA, 'models', 'gguf'), '--out', d + '/o', bad), ('with tokenizer.json', 'GGUF'), 4),
                                    (('prepare', '--out', d + '/o', bad), ('--model DIR',), 2),
                                    (('prepare', '--model', CHATTY, '--out', d + '/o', unanswered), ('nothing to learn', '40 documents', 'answer'), 1),
                                    (('train-tokenizer', '--out', d + '/o', bad), ('bad.jsonl:2',), 1),
                                    (('train-tokenizer', '--vocab-size', '256', '--out', d + '/o', bad), ('256',), 2),
                                    (('show', d), ('data.json', 'quire data prepare'), 4), (('shw',), ('show',), 2)):
            rc, out, err = run('data', *args)
            assert rc == status and out == '' and all(w in err for w in words), (args, rc, err)
        assert sorted(os.listdir(d)) == ['asked.jsonl', 'bad.jsonl'], os.listdir(d)


def test_ctrl_c_and_sigterm_leave_no_half_output():
    need_data(TEXT)
    with tempfile.TemporaryDirectory() as d:
        pipe = d + '/pipe'
        os.mkfifo(pipe)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            p = subprocess.Popen([QUIRE, 'data', 'prepare', '--model', os.path.join(DATA, 'models', 'stories260K'), '--format', 'jsonl', '--out', d + '/o', pipe],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            fd = os.open(pipe, os.O_WRONLY)
            os.write(fd, b'{"text":"one"}\n' * 10)
            deadline = time.time() + 60 * SLOW
            while not os.path.exists(d + '/o.preparing/shard-00000.bin') and time.time() < deadline:
                time.sleep(0.01)
            p.send_signal(number)
            while p.poll() is None and time.time() < deadline:  # it looks behind each document
                try:
                    os.write(fd, b'{"text":"more"}\n')
                except BrokenPipeError:
                    break
                time.sleep(0.01)
            os.close(fd)
            try:
                _, err = p.communicate(timeout=60 * SLOW)
            finally:
                p.kill()
            assert p.returncode == status and b'nothing was written' in err, (p.returncode, err)
            assert os.listdir(d) == ['pipe'], os.listdir(d)


if __name__ == '__main__':
    main(globals())
