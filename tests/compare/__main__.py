"""Compare this checkout with a frozen program, on the same inputs; see `CONTRIBUTING.md`.

    PYTHONPATH=tests python -m compare BEFORE [--all] [CASE ...]

BEFORE is the environment of the frozen program, from `make before`. Its inputs and results are
kept next to it. The exit code is 1 if a difference is unexplained, or an explained one is missing.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compare.differences import Results, as_toml, compare_results, explain
from compare.inputs import DATA, REAL, write_inputs
from compare.options import COMMANDS, long_options, unused_options
from compare.reading import read_results
from compare.running import CASE, Server, run_case

HERE = Path(__file__).parent
MOST = 100  # printed differences


def main() -> None:
    """Run the cases, and print the differences."""
    parser = argparse.ArgumentParser(prog="compare")
    parser.add_argument("before", type=Path)
    parser.add_argument("cases", nargs="*", help="run only these cases")
    parser.add_argument("--all", action="store_true", help="print all differences")
    arguments = parser.parse_intermixed_args()
    start = time.monotonic()
    content = tomllib.loads((HERE / "cases.toml").read_text("utf-8"))
    explained = tomllib.loads((HERE / "explained.toml").read_text("utf-8"))
    cases = content["cases"]
    if unused := unused_options(cases.values(), {each: long_options(each) for each in COMMANDS}):
        raise SystemExit(f"No case uses {', '.join(unused)}. Add them to tests/compare/cases.toml")
    cases = {name: cases[name] for name in arguments.cases or cases}
    if not DATA.is_dir():
        skipped = [name for name, script in cases.items() if f"../in/{REAL}/" in script]
        print(f"{DATA} does not exist, so these cases are skipped: {', '.join(skipped)}")
        cases = {name: script for name, script in cases.items() if name not in skipped}
    with tempfile.TemporaryDirectory(prefix="tt-compare-") as scratch:
        comparison = Comparison(
            arguments.before, scratch=Path(scratch), datasets=explained.get("dataset", [])
        )
        with comparison, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            comparison.make_inputs(content["inputs"]["models"])
            pairs = pool.map(comparison.run, cases, cases.values())
            results = dict(zip(cases, pairs, strict=True))
    found = [each for name, pair in results.items() for each in compare_results(name, *pair)]
    left, wrong = explain(found, explained.get("difference", []), cases=cases)
    shown = left if arguments.all else left[:MOST]
    print("\n".join(filter(None, [as_toml(shown), *wrong, *comparison.wrong])))
    more = f"; --all prints {len(left) - len(shown):,} more" if len(shown) < len(left) else ""
    print(
        f"{len(cases)} cases in {time.monotonic() - start:.0f} s: {len(found):,} differences, "
        f"{len(left):,} of them unexplained{more}"
    )
    sys.exit(bool(left or wrong or comparison.wrong))


class Comparison:
    """Runs cases with both programs, and keeps the results of the frozen one.

    Args:
      environment: The environment of the frozen program. The folder next to it, with the suffix
        `.results`, keeps its inputs and results.
      scratch: An empty folder. Both programs run in paths of equal length below it, because the
        length of a path decides where a table breaks a line.
      datasets: The entries `[[dataset]]` of `explained.toml`.
    """

    def __init__(
        self, environment: Path, *, scratch: Path, datasets: Iterable[Mapping[str, Any]]
    ) -> None:
        self._environment, self._scratch, self._datasets = environment, scratch, datasets
        self._kept = environment.with_name(f"{environment.name}.results")
        self._before = Server(environment / "bin/python", scratch / "old")
        self._after = Server(Path(sys.executable), scratch / "new")
        self._inputs, self._digest = Path(), ""
        self.wrong: list[str] = []  # what is wrong with the entries for datasets

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *exception: object) -> None:
        self._before.close()
        self._after.close()

    def make_inputs(self, models: str) -> None:
        """Write the inputs, and train the models with the frozen program, unless they exist."""
        code = (HERE / "inputs.py").read_bytes()
        self._digest = _digest(code, models, str(DATA.is_dir()))
        root = self._kept / f"inputs-{self._digest}"
        self._inputs = root / CASE
        if not _is_done(root):
            print("Training the models of the inputs with the frozen program", flush=True)
            (embedded,) = self._environment.rglob("english_spanish_train.tsv.gz")
            write_inputs(self._inputs, embedded)
            run_case(self._before.connect(), models, root, self._inputs)
            for code in self._inputs.glob("*.code"):
                if code.read_text("utf-8") != "0\n":
                    raise SystemExit(code.with_suffix(".err").read_text("utf-8"))
            (root / "done").touch()

    def run(self, name: str, script: str) -> tuple[Results, Results]:
        """Return the results of both programs."""
        runner = (HERE / "running.py").read_bytes() + (HERE / "server.py").read_bytes()
        kept = self._kept / _digest(self._digest, name, script, runner)
        old, new = (self._scratch / each / name for each in ("old", "new"))
        if not _is_done(kept):
            run_case(self._before.connect(), script, old, self._inputs)
            (old / "done").write_text(str(old), "utf-8")
            shutil.move(old, kept)
        run_case(self._after.connect(), script, new, self._inputs)
        ran_in = Path((kept / "done").read_text("utf-8"))
        results = read_results(kept, ran_in), read_results(new)
        for entry in self._datasets:
            if name in entry["cases"]:
                self._use_pairs(entry, results, (kept, new))
        return results

    def _use_pairs(
        self, entry: Mapping[str, Any], results: tuple[Results, Results], roots: tuple[Path, Path]
    ) -> None:
        from compare.datasets import use_pairs  # imports TensorFlow

        folder = entry["folder"]
        bytes_of = [
            [places for file, places in each.items() if file.startswith(f"{folder}/")]
            for each in results
        ]
        if bytes_of[0] == bytes_of[1] or not entry.get("reason", "").strip():
            self.wrong.append(f"This dataset has equal bytes, or the entry no reason: {entry}")
        for each, root in zip(results, roots, strict=True):
            use_pairs(each, root, folder)


def _is_done(root: Path) -> bool:
    """Return whether a folder is finished, and delete an unfinished folder."""
    if (root / "done").exists():
        return True
    shutil.rmtree(root, ignore_errors=True)
    return False


def _digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else part.encode())
        whole.update(b"\0")
    return whole.hexdigest()[:16]


if __name__ == "__main__":
    main()
