#!/usr/bin/env bash
# Trains a student with 6 encoder and 2 decoder layers on a teacher's translations, the same student
# on the original text, and a student with 6 decoder layers on the original text. Prints BLEU on the
# test set by tt in float32 and by CTranslate2 in int8.
#
#     tests/bench/distillation.sh TEACHER CORPUS OUTPUT
#
# TEACHER is a run that translates English to German. CORPUS is a path to which `.train.en`,
# `.val.de`, `.test.en` and similar suffixes are added. STEPS is the number of updates per student.
# The same command resumes a stopped run.
set -euo pipefail
teacher=$(realpath "$1") corpus=$(realpath -m "$2") output=$(realpath -m "$3")
steps=${STEPS:-2000}
bench=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$output"; cd "$output"
shape=(--d-model 128 --heads 4 --d-ff 256 --norm pre --dropout 0.25)
train() { # NAME DATASET DECODER_LAYERS
  [ -d "$1.run/model" ] || tt train --dataset "$2" --run "$1.run" --preset tiny "${shape[@]}" \
    --encoder-layers 6 --decoder-layers "$3" --subword-dropout 0.1 \
    --batch-tokens 2048 --steps "$steps" --peak-learning-rate 0.004 --warmup-steps 800 --validate-every 400 \
    --score-every 0 --save-every 200 --keep-checkpoints 5 --average last
}
make() { # NAME CORPUS
  [ -f "$1/dataset.json" ] || tt preprocess "$2" --vocab-of "$teacher" --validation "$corpus.val.en+$corpus.val.de" \
    --exclude "$corpus.test.en" --exclude "$corpus.test.de" --output "$1"
}
score() { # NAME MODEL
  [ -d "$1.ct2" ] || tt export "$2" --format ctranslate2 --output "$1.ct2"
  for engine in "tensorflow float32 $2" "ctranslate2 int8 $1.ct2"; do
    read -r name type model <<< "$engine"
    out=$1.$name.$type.de
    [ -s "$out" ] || { tt translate --model "$model" --engine "$name" --compute-type "$type" < "$corpus.test.en" > "$out.tmp" && mv "$out.tmp" "$out"; }
    echo "$1 $name $type $(tt evaluate "$out" --reference "$corpus.test.de" --language de | grep -m1 BLEU)"
  done
}
score teacher "$teacher"
make plain "$corpus.train.en+$corpus.train.de"
train plain plain 2
score plain plain.run
[ -f source.parquet ] || python - "$corpus.train.en" <<'END'
import sys
import pyarrow as pa, pyarrow.parquet as pq
with open(sys.argv[1], encoding="utf-8", newline="\n") as lines:
    pq.write_table(pa.table({"source": lines.read().removesuffix("\n").split("\n")}), "source.parquet")
END
tt translate-batch source.parquet --text-column source --model "$teacher" --engine ctranslate2 --output translated
make taught translated/:source:translation
train taught taught 2
score taught taught.run
train deep plain 6
score deep deep.run
echo "Measure sentences/s on an idle machine:"
echo "  python $bench/depths.py $output/deep.run $output/taught.run $corpus.test.en"
echo "  python $bench/depths.py $teacher $output/taught.run $corpus.test.en"
