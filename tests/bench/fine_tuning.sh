#!/usr/bin/env bash
# Fine-tunes a model of one domain on 5,000 pairs of another domain, with and without added pairs of
# the first domain. Prints BLEU on a test set of each domain for these models, for the original
# model, and for a model that is trained only on the 5,000 pairs.
#
#     tests/bench/fine_tuning.sh MODEL GENERAL DOMAIN OUTPUT
#
# MODEL is a run trained on GENERAL.train.en and .de. GENERAL and DOMAIN are paths to which
# `.train.en`, `.test.en` and similar suffixes are added. The same command resumes a stopped run.
set -euo pipefail
model=$(realpath "$1") general=$(realpath -m "$2") domain=$(realpath -m "$3") output=$4
pairs=${PAIRS:-5000} steps=${STEPS:-1500} alone_steps=${ALONE_STEPS:-1500} mix=${MIX:-0.03}
mkdir -p "$output"; cd "$output"
for side in en de; do
  head -n "$pairs" "$domain.train.$side" > "domain.$side"
  head -n 500 "$domain.val.$side" > "domain.val.$side"
done
make() { # NAME CORPORA... OPTIONS...
  [ -f "$1/dataset.json" ] || tt preprocess "${@:2}" --source-language en --target-language de \
    --validation domain.val.en+domain.val.de --exclude "$domain.test.en" --exclude "$domain.test.de" \
    --exclude "$general.test.en" --exclude "$general.test.de" --output "$1"
}
train() { # NAME OPTIONS...
  [ -d "$1.run/model" ] || tt train --dataset "$1" --run "$1.run" --subword-dropout 0.1 --batch-tokens 2048 \
    --validate-every 100 --score-every 0 --save-every 100 --best-metric nll "${@:2}"
}
score() { # NAME MODEL
  for test in general domain; do
    prefix=${!test}
    [ -s "$1.$test.de" ] || { tt translate --model "$2" < "$prefix.test.en" > "$1.$test.tmp" && mv "$1.$test.tmp" "$1.$test.de"; }
    echo "$1 $test $(tt evaluate "$1.$test.de" --reference "$prefix.test.de" --language de | grep -m1 BLEU)"
  done
}
tune=(--init-from "$model" --steps "$steps" --peak-learning-rate 0.001 --warmup-steps 100 --schedule constant)
score before "$model"
make tuned domain.en+domain.de --vocab-of "$model"
train tuned "${tune[@]}"
score tuned tuned.run/best_model
make mixed domain.en+domain.de "general=$general.train.en+$general.train.de" --weight "general=$mix" --vocab-of "$model"
train mixed "${tune[@]}"
score mixed mixed.run/best_model
make alone domain.en+domain.de --vocabulary-size 2000
train alone --preset tiny --heads 4 --d-ff 256 --norm pre --dropout 0.25 --steps "$alone_steps" \
  --peak-learning-rate 0.003 --warmup-steps 300
score alone alone.run/best_model
