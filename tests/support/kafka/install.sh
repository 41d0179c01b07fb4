#!/usr/bin/env bash
# Installs Apache Kafka's broker into .cache/kafka. It needs Java 17 or later.
set -euo pipefail
cd "$(dirname "$0")/../../.."

for program in java mvn; do
    command -v "$program" > /dev/null || { echo "Kafka needs $program, which is not installed" >&2; exit 1; }
done
rm -rf .cache/kafka/lib
mvn --quiet --batch-mode -Dstyle.color=never --strict-checksums -f tests/support/kafka/pom.xml package
