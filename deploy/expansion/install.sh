#!/usr/bin/env bash
# Installs Beam's expansion service with its Kafka connector into .cache/expansion. It has 140 MB and
# needs Java 11 or later.
set -euo pipefail
cd "$(dirname "$0")/../.."

for program in java mvn; do
    command -v "$program" > /dev/null || { echo "Beam's Kafka connector needs $program, which is not installed" >&2; exit 1; }
done
rm -rf .cache/expansion/jars
mvn --quiet --batch-mode -Dstyle.color=never --strict-checksums -f deploy/expansion/pom.xml package
