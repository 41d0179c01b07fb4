"""Spark in an environment of its own, by statements of SQL."""

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


def find_lack():
    """Returns what this machine lacks for Spark, or None."""
    if not PYTHON.is_file():
        return f"there is no {PYTHON}: see `make test-spark`"
    if shutil.which("java") is None:
        return f"there is no Java: Spark needs Java {LEAST_JAVA} or later"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < LEAST_JAVA:
        return f"Spark needs Java {LEAST_JAVA} or later; {said.splitlines()[0]}"
    return None


def run_sql(*statements, folder):
    """Runs statements one after the other; returns the schema and the rows of each."""
    done = subprocess.run(
        [PYTHON, "-c", _MAIN], input=json.dumps(statements), cwd=folder, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
