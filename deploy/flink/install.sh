#!/usr/bin/env bash
# Flink, and Beam's job server for it, into .cache/flink: half a gigabyte, for Java 11 or 17.
set -euo pipefail
cd "$(dirname "$0")/../.."

for program in java mvn; do
    command -v "$program" > /dev/null || { echo "Flink needs $program, which is not here" >&2; exit 1; }
done
"${PYTHON:-.venv/bin/python}" -m pip install --quiet --no-deps --require-hashes --upgrade \
    --target .cache/flink -r deploy/flink/requirements.txt
mvn --quiet --batch-mode --strict-checksums -f deploy/flink/pom.xml package
