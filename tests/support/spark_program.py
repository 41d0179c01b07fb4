"""Spark in its own environment, controlled by SQL statements."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("TT_SPARK_PYTHON", ROOT / ".venv/spark/bin/python"))
LEAST_JAVA = 17
_MAIN = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.session.timeZone", "UTC")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
found = []
for statement in json.load(sys.stdin):
    table = spark.sql(statement)
    rows = [row.asDict(recursive=True) for row in table.collect()]
    found.append({"schema": table.schema.simpleString(), "rows": rows})
spark.stop()
print(json.dumps(found))
"""


def find_missing_requirement():
    """Return the reason why Spark cannot run on this machine, or None."""
    if not PYTHON.is_file():
        return f"{PYTHON} does not exist: run `make test-spark`"
    if shutil.which("java") is None:
        return f"Spark needs Java {LEAST_JAVA} or later, which is not installed"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < LEAST_JAVA:
        return f"Spark needs Java {LEAST_JAVA} or later. Found: {said.splitlines()[0]}"
    return None


def run_sql(*statements, folder):
    """Run statements in order; return the schema and the rows of each."""
    done = subprocess.run(
        [PYTHON, "-c", _MAIN], input=json.dumps(statements), cwd=folder, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
