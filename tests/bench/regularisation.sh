#!/usr/bin/env bash
# A recipe with and without a moving average of weights and R-Drop, at the same number of target tokens: the validations.
#
#     tests/bench/regularisation.sh DATASET OUTPUT
#
# STEPS is the number of updates of each run; every run sees the same batches. What is finished stays: the same command
# goes on.
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
