#!/usr/bin/env bash
# Installs Flink, and Beam's job server for Flink, into .cache/flink. They have half a gigabyte and
# need Java 11 or 17.
set -euo pipefail
cd "$(dirname "$0")/../.."

for program in java mvn; do
    command -v "$program" > /dev/null || { echo "Flink needs $program, which is not installed" >&2; exit 1; }
done
"${PYTHON:-.venv/bin/python}" -m pip install --quiet --no-deps --require-hashes --upgrade \
    --target .cache/flink -r deploy/flink/requirements.txt
mvn --quiet --batch-mode --strict-checksums -f deploy/flink/pom.xml package
