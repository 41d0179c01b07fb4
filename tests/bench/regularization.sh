#!/usr/bin/env bash
# Trains a recipe without regularization, with a moving average of weights, and with R-Drop, on the
# same number of target tokens. Prints their validations.
#
#     tests/bench/regularization.sh DATASET OUTPUT
#
# STEPS is the number of updates per run. Every run sees the same batches. The same command resumes
# a stopped run.
set -euo pipefail
dataset=$1 output=$2
steps=${STEPS:-2000}
recipe=$(cd "$(dirname "$0")/../.." && pwd)/model/recipes/multi30k-en-de.yaml
run() { # NAME OPTIONS...
  [ -d "$output/$1/model" ] || tt train --config "$recipe" --dataset "$dataset" --run "$output/$1" --steps "$steps" \
    --validate-every 500 --score-every "$steps" --average none "${@:2}"
  echo "$1 $(grep '"kind": "validation"' "$output/$1/train.jsonl" | tail -n 1 | cut -c 1-260)"
}
run recipe
run ema --ema 0.999
run r-drop --r-drop 5
