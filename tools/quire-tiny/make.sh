#!/bin/sh
# Makes quire-tiny again from nothing: conversations, tokenizer, ids, training, and the questions that say what it learnt. From the repository's root:
#     tools/quire-tiny/make.sh build/quire [WORK] [train settings: NAME=VALUE...]
# WORK (build/quire-tiny) keeps everything on the way, WORK/run/final the model. A run that was interrupted goes on where it stopped.
set -eu
quire=$1
work=${2:-build/quire-tiny}
here=$(dirname "$0")
[ $# -lt 2 ] || shift
shift
settings=
for s in "$@"; do settings="$settings --set $s"; done
mkdir -p "$work"
if [ ! -d "$work/data" ]; then
    python3 "$here/corpus.py" "$work/corpus"
    rm -rf "$work/tokenizer"
    cat >"$work/chat_template.jinja" <<'TEMPLATE'
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('the roles are system, user and assistant, not ' + m.role) }}{% endif %}
    {{- '<|' + m.role + '|>' + m.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
TEMPLATE
    "$quire" data train-tokenizer --vocab-size 1536 --cut qwen2 --special '<|begin|>' --special '<|system|>' --special '<|user|>' --special '<|assistant|>' --special '<|end|>' \
        --bos '<|begin|>' --eos '<|end|>' --chat-template "$work/chat_template.jinja" --out "$work/tokenizer" "$work/corpus/train.jsonl"
    "$quire" data prepare --replace --model "$work/tokenizer" --out "$work/eval" "$work/corpus/eval.jsonl"
    "$quire" data prepare --model "$work/tokenizer" --out "$work/data" "$work/corpus/train.jsonl"
fi
resume=
[ ! -e "$work/run/latest" ] || resume=--resume
# shellcheck disable=SC2086
"$quire" train "$here/train.yaml" --set "model.config=$here/shape.json" --set "data.train=$work/data" --set "data.eval=$work/eval" --set "save.out=$work/run" $settings $resume
python3 "$here/ask.py" "$quire" "$work/run/final" "$work/corpus/questions.jsonl"
