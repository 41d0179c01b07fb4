"""Measure `tt translate-batch` with int8 against a script with Transformers: same model and cores.

    python tests/bench/huggingface.py opus-mt-en-es articles.parquet body --rows 20000
    python tests/bench/huggingface.py random-model articles.parquet body --new-tokens 20

The model is a folder in the layout of Hugging Face. The script with Transformers sorts the texts by
length, and translates batches of 64 texts with greedy search in float32. It reads and writes JSON,
and runs in the environment of `make test-huggingface`. Both programs run in turn, in another order
each round, and the times include everything. With --new-tokens, both programs stop each translation
at this number of tokens, which models with random weights need.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

_BIN = Path(sys.executable).parent
_TRANSFORMERS = Path(__file__).resolve().parents[2] / ".venv/huggingface/bin/python"
_SCRIPT = """
import json, pathlib, sys
import numpy as np, torch
from transformers import AutoTokenizer, MarianMTModel
model_name, source, target, most, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = MarianMTModel.from_pretrained(model_name).eval()
texts = json.loads(pathlib.Path(source).read_text())
order = np.argsort([len(text) for text in texts], kind="stable")
limit = {"max_new_tokens": int(most)} if int(most) else {"max_length": 256}
found = [None] * len(texts)
with torch.inference_mode():
    for first in range(0, len(order), 64):
        places = order[first : first + 64]
        batch = tokenizer([texts[i] for i in places], return_tensors="pt", padding=True)
        ids = model.generate(**batch, num_beams=1, do_sample=False, **limit)
        for place, text in zip(places, tokenizer.batch_decode(ids, skip_special_tokens=True)):
            found[place] = text
pathlib.Path(target).write_text(json.dumps(found))
"""


def main() -> None:
    """Run both programs in turn, and print the ratio of their times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("column")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--new-tokens", type=int, default=0)
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.parquet")
        table = pq.read_table(options.table).slice(0, options.rows)
        pq.write_table(table, source)
        Path(folder, "in.json").write_text(json.dumps(table[options.column].to_pylist()))
        limit = ["--max-length-ratio", "0", "--max-extra-tokens", str(options.new_tokens)]
        tt = [
            _BIN / "tt", "translate-batch", source, "--text-column", options.column, "--model",
            options.model, "--compute-type", "int8", "--beam-size", "1", "--max-failed", "1",
            *(limit if options.new_tokens else []),
        ]  # fmt: skip
        script = [
            _TRANSFORMERS, "-c", _SCRIPT, options.model, f"{folder}/in.json", f"{folder}/out.json",
            options.new_tokens, options.threads,
        ]  # fmt: skip
        subprocess.run([str(a) for a in [*tt, "--limit", "1", "--output", f"{folder}/first"]],
                       check=True, capture_output=True)  # fmt: skip
        for number in range(options.rounds):
            programs = {
                "tt": [*tt, "--output", f"{folder}/{number}"],
                "transformers": script,
            }
            seconds = {}
            for name in random.Random(number).sample(sorted(programs), 2):
                start = time.monotonic()
                command = [str(part) for part in programs[name]]
                subprocess.run(command, check=True, capture_output=True)
                seconds[name] = time.monotonic() - start
            ratios.append(seconds["transformers"] / seconds["tt"])
            print(
                f"transformers {seconds['transformers']:.1f} s, tt {seconds['tt']:.1f} s, "
                f"ratio {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
