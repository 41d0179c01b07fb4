#!/usr/bin/env bash
# Train tiny models on Multi30k (English to German), to measure filters, augmentation and
# back-translation. Print the BLEU of each model on the test set of 2016.
#
#     tests/bench/multi30k.sh DATA OUTPUT EXPERIMENT...
#
# DATA is the folder with the .gz files of Multi30k. The experiments:
#
#     clean       the 29,000 pairs
#     unfiltered  the 29,000 pairs and 5,800 pairs of noise, without any filter
#     filtered    the pairs of `unfiltered` with the default filters and `--alignment-filter FILTER`
#     augment     the 29,000 pairs with `--augment SHARE`; also scores changed test sets
#     pairs       only the first 10,000 pairs
#     back        the first 10,000 pairs, and back-translations of the other 19,000 German lines
#
# docs/benchmarks.md has the scores of `clean`, `augment`, `pairs` and `back` after 2,500 and after
# 7,500 updates.
#
# SEED, STEPS, SHARE and FILTER (0.4 by default) are environment variables. If CHANGED is set, the
# script also scores the changed test sets in the other experiments. The noise consists of equal parts
# of misaligned pairs, pairs with a French target, and pairs whose target is a copy of the source. The
# same command resumes a stopped run.
set -euo pipefail
data=$(realpath "$1") output=$2
seed=${SEED:-1} steps=${STEPS:-2500} share=${SHARE:-0.1}
mkdir -p "$output"; cd "$output"
for file in train val test_2016_flickr; do
  for side in en de fr; do [ -s "$file.$side" ] || { zcat "$data/$file.$side.gz" > "$file.tmp.$$"; mv "$file.tmp.$$" "$file.$side"; }; done
done
test=test_2016_flickr
noise() { # writes copies, French targets, and targets of other lines
  head -n 5800 train.en > noise.en
  { head -n 1933 train.en; sed -n 1934,3866p train.fr; sed -n 13867,15800p train.de; } > noise.de
}
make() { # NAME SOURCE-LANGUAGE TARGET-LANGUAGE CORPORA... OPTIONS...
  [ -f "$1/dataset.json" ] || tt preprocess "${@:4}" --source-language "$2" --target-language "$3" --vocabulary-size 6000 \
    --validation "val.$2+val.$3" --exclude "$test.en" --exclude "$test.de" --output "$1"
}
train() { # NAME DATASET OPTIONS...
  [ -d "$1/model" ] || tt train --dataset "$2" --run "$1" --seed "$seed" --preset tiny --heads 4 --d-ff 256 --norm pre \
    --dropout 0.25 --steps "$steps" --peak-learning-rate 0.003 --warmup-steps 300 --subword-dropout 0.1 \
    --batch-tokens 2048 --validate-every 250 --score-every 0 --save-every 250 --best-metric nll "${@:3}"
}
score() { # NAME OPTIONS...
  [ -s "$1.de" ] || { tt translate --model "$1/best_model" < "$test.en" > "$1.tmp" && mv "$1.tmp" "$1.de"; }
  nll=$(grep '"kind": "validation"' "$1/train.jsonl" | grep -o '"nll": [0-9.]*' | cut -d ' ' -f 2 | sort -g | head -n 1)
  echo "$1 $(tt evaluate "$1.de" --reference "$test.de" --language de 2> /dev/null | grep -m1 BLEU) nll $nll"
}
score_changed() { # NAME: capitals, no final punctuation, and a swap of two letters in every third word
  [ -s changed.en ] || python3 - <<'PYTHON'
import re
lines = open("test_2016_flickr.en").read().splitlines()
count = 0
def swap(word):
    global count
    count += 1
    text = word[0]
    return text if count % 3 else text[0] + text[2] + text[1] + text[3:]
changed = [line.upper() for line in lines] + [re.sub(r"\W+$", "", line) for line in lines]
changed += [re.sub(r"[A-Za-z]{4,}", swap, line) for line in lines]
open("changed.en", "w").write("\n".join(changed) + "\n")
PYTHON
  [ -s "$1.changed.de" ] || { tt translate --capitals keep --model "$1/best_model" < changed.en > "$1.tmp" && mv "$1.tmp" "$1.changed.de"; }
  for part in 1:capitals 1001:unpunctuated 2001:typos; do
    sed -n "${part%%:*},$((${part%%:*} + 999))p" "$1.changed.de" > "$1.part.de"
    # `tt` adds no final punctuation that a source does not have.
    if [ "${part#*:}" = unpunctuated ]; then sed -E 's/[.!?]+ *$//' "$test.de"; else cat "$test.de"; fi > "$1.reference.de"
    echo "$1 ${part#*:} $(tt evaluate "$1.part.de" --reference "$1.reference.de" --language de 2> /dev/null | grep -m1 BLEU)"
  done
}
for experiment in "${@:3}"; do
  name=$experiment.$seed.$steps dataset=$experiment.data
  case $experiment in
  clean) make clean.data en de train.en+train.de; train "$name" clean.data ;;
  unfiltered | filtered)
    [ -s noise.de ] || noise
    if [ "$experiment" = filtered ]; then options=(--alignment-filter "${FILTER:-0.4}"); else
      options=(--no-language-filter --keep-identical --max-length-ratio 0 --min-letters 0 --min-script 0 --keep-mojibake); fi
    make "$dataset" en de train.en+train.de noise.en+noise.de "${options[@]}"; train "$name" "$dataset" ;;
  augment) make clean.data en de train.en+train.de; name=$name.$share; train "$name" clean.data --augment "$share" ;;
  pairs | back)
    for side in en de; do head -n 10000 train.$side > pairs.$side; done
    if [ "$experiment" = back ]; then
      [ -s mono.txt ] || tail -n 19000 train.de > mono.txt
      make reverse.data de en pairs.de+pairs.en; train reverse.1 reverse.data --seed 1
      tt back-translate mono.txt --model reverse.1/best_model --output bt
      make back.data en de pairs=pairs.en+pairs.de bt=bt/ --user-symbol '<BT>'
    else make pairs.data en de pairs.en+pairs.de; fi
    train "$name" "$dataset" ;;
  *) echo "unknown experiment $experiment" >&2; exit 2 ;;
  esac
  score "$name"
  if [ "$experiment" = augment ] || [ -n "${CHANGED:-}" ]; then score_changed "$name"; fi
done
