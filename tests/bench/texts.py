"""Measure the CPU time of a translation beside the model, for each kind of text.

    make bench-texts
    python tests/bench/texts.py --before ~/.cache/tt/before/COMMIT/bin/python --only plain

The rows are built from pairs of Tatoeba in `../shared/data`. The vocabulary is real. The decoder
returns the human translations at once, and its time does not count. The table shows the best of
several rounds:

- The CPU time of `translate_texts`, in microseconds per row and per sentence.
- The part of it that SentencePiece and the normalization need to encode the texts, per sentence.
- The rows with another status than "ok", and the rows with flags.

The last lines compare the sentences per second of two threads and of two processes with those of
one thread, for plain sentences. The processes are copies of a process that has loaded the model.
With --before, another version of `tt` measures each kind in turn with this one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from processes import CommandError, Competitor, cache_folder
from real_corpora import Pairs, read_pairs, train_model

_HERE = Path(__file__).resolve().parent
_VERSION = 1  # increase it if the same pairs give other rows
_ROWS = 1000
_VOCABULARY_SIZE = 8000
_ANSWER = re.compile(r"\{.*\}")
_PLAIN = re.compile(r"[\w ,'’-]{15,90}[.?!]")
_NUMBER = re.compile(r"(?<![\w.,-])[0-9]{1,4}(?![\w.,-])")
_PLAIN_KIND = "plain"
_SENTENCES = {"ten plain sentences": 10, "Markdown": 4, "Markdown with a table": 6}
_ADDRESS = "https://www.example.com/shop/item-{}"
_WORKERS = {"one thread": (1, True), "two threads": (2, True), "two processes": (2, False)}
_REPEATS = 20  # of the rows of a kind, so that starting processes has little weight


def _link(text: str, before: str, after: str) -> str:
    """Put marks around the middle word of a text."""
    words = text.split(" ")
    middle = len(words) // 2
    words[middle] = f"{before}{words[middle]}{after}"
    return " ".join(words)


def make_rows(pairs: Pairs) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the rows of each kind, and the translations of all sentences for the model."""
    plain = [p for p in pairs if all(map(_PLAIN.fullmatch, p)) and not _has_number(p)]
    translations = dict(plain)
    sentences = iter([*translations])

    def take(make: Callable[[Iterator[str], int], str]) -> list[str]:
        return [make(sentences, i) for i in range(_ROWS)]

    rows = {
        _PLAIN_KIND: take(lambda s, _: next(s)),
        "ten plain sentences": take(lambda s, _: " ".join(next(s) for _ in range(10))),
        "HTML with a tag": take(lambda s, _: _link(next(s), "<b>", "</b>")),
        "Markdown": take(
            lambda s, i: (
                f"# {next(s)}\n\n{_link(next(s), '[', f']({_ADDRESS.format(i)})')}\n\n"
                f"- {next(s)}\n- {next(s)}\n"
            )
        ),
        "Markdown with a table": take(
            lambda s, i: (
                f"# {next(s)}\n\n{_link(next(s), '[', f']({_ADDRESS.format(i)})')}\n\n"
                f"| {next(s)} | {next(s)} |\n|---|---|\n| {next(s)} | {next(s)} |\n"
            )
        ),
    }
    numbered = [pair for pair in pairs if _has_same_number(*pair)]
    rows["with a number"] = []
    for i in range(_ROWS):
        source, target = (_NUMBER.sub(str(i + 2), side) for side in numbered[i % len(numbered)])
        rows["with a number"].append(source)
        translations[source] = target
    rows["with a URL"] = []
    for i in range(_ROWS):
        source = next(sentences)
        target = translations[source]
        rows["with a URL"].append(f"{source[:-1]} ({_ADDRESS.format(i)}){source[-1]}")
        translations[f"{source[:-1]} (⟦1⟧){source[-1]}"] = f"{target[:-1]} (⟦1⟧){target[-1]}"
    return rows, translations


def _has_number(pair: tuple[str, str]) -> bool:
    return bool(re.search("[0-9]", "".join(pair)))


def _has_same_number(source: str, target: str) -> bool:
    """Return whether both texts are plain, except for the same number in digits."""
    sides = [_NUMBER.findall(text) for text in (source, target)]
    return (
        len(sides[0]) == 1
        and sides[0] == sides[1]
        and all(
            _PLAIN.fullmatch(text) and len(re.findall("[0-9]+", text)) == 1
            for text in (source, target)
        )
    )


def write_inputs(*, cache: Path) -> Path:
    """Return the file with the rows and the translations; write it if it is missing."""
    path = cache / f"texts-v{_VERSION}.json"
    if not path.exists():
        pairs = [(b, a) for a, b in read_pairs("tatoeba_de_en", "train", ("de", "en"))]
        rows, translations = make_rows(pairs)
        lines = [text for pair in pairs for text in pair]
        spm = cache / f"texts-v{_VERSION}.spm"
        spm.write_bytes(train_model(lines, size=_VOCABULARY_SIZE, protect=True))
        inputs = {"rows": rows, "translations": translations, "vocabulary": str(spm)}
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(json.dumps(inputs), "utf-8")
        temporary.replace(path)
    return path


class Version:
    """A version of `tt`.

    Args:
      name: The name in the results.
      python: The Python of its environment.
      inputs: The file with the rows.
      folder: A folder for its messages.
    """

    def __init__(self, name: str, *, python: Path, inputs: Path, folder: Path) -> None:
        command = [python, _HERE / "text_loop.py", inputs]
        self.loop = Competitor(name, command, errors=folder / name)
        self.best: dict[str, dict[str, Any]] = {}  # the fastest answers, by kind or workers

    def measure(self, name: str, *, by: str, **request: Any) -> None:
        """Send a request, and keep its answer if it is the best one."""
        answer = json.loads(self.loop.ask(json.dumps(request), answer=_ANSWER)[0])
        best = self.best.setdefault(name, answer)
        if answer[by] < best[by]:
            self.best[name] = answer


def measure(kinds: list[str], versions: list[Version], *, rounds: int) -> None:
    """Measure each kind with each version in turn, then the workers."""
    for number in range(rounds):
        turn = number % len(versions)
        ordered = [*versions[turn:], *versions[:turn]]
        for kind in kinds:
            for version in ordered:
                version.measure(kind, by="cpu", kind=kind, workers=1, are_threads=True, repeats=1)
        for name, (workers, are_threads) in _WORKERS.items() if _PLAIN_KIND in kinds else ():
            for version in ordered:
                version.measure(
                    name, by="seconds", kind=_PLAIN_KIND, workers=workers, are_threads=are_threads,
                    repeats=_REPEATS,
                )  # fmt: skip
        print(f"round {number + 1}/{rounds}", file=sys.stderr, flush=True)


def print_tables(kinds: list[str], versions: list[Version]) -> None:
    """Print a line per kind, and a line per number of workers."""
    for version in versions:
        print(
            f"{version.loop.name + ':':23s} {'us/row':>8s} {'us/sentence':>12s} {'encoding':>9s} "
            f"{'not ok':>7s} {'flagged':>8s}"
        )
        for kind in kinds:
            answer = version.best[kind]
            row, encoding = (answer[name] / _ROWS * 1e6 for name in ("cpu", "encoding"))
            count = _SENTENCES.get(kind, 1)
            print(
                f"{kind:23s} {row:8.0f} {row / count:12.1f} {encoding / count:9.1f} "
                f"{answer['not_ok']:7,d} {answer['flagged']:8,d}"
            )
    if _PLAIN_KIND not in kinds:
        return
    print(f"\n{'sentences/s, ratio':23s}" + "".join(f"{each.loop.name:>17s}" for each in versions))
    for name, (workers, _) in _WORKERS.items():
        line = f"{name:23s}"
        for version in versions:
            alone = version.best["one thread"]["seconds"]
            seconds = version.best[name]["seconds"]
            line += (
                f"{workers * _ROWS * _REPEATS / seconds:10,.0f} {workers * alone / seconds:6.2f}"
            )
        print(line)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="Run kinds with these beginnings.")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="Keep generated files in this folder."
    )
    return parser.parse_args()


def main() -> None:
    """Measure, and print the tables."""
    options = _parse()
    options.cache.mkdir(parents=True, exist_ok=True)
    inputs = write_inputs(cache=options.cache.resolve())
    rows = json.loads(inputs.read_text("utf-8"))["rows"]
    kinds = [kind for kind in rows if kind.startswith(tuple(options.only))]
    pythons = {"before": options.before, "now": Path(sys.executable)}
    with (
        tempfile.TemporaryDirectory(dir=options.cache) as folder,
        contextlib.ExitStack() as stack,
    ):
        versions = []
        for name, python in pythons.items():
            if python:
                version = Version(
                    name, python=python.absolute(), inputs=inputs, folder=Path(folder)
                )
                stack.callback(version.loop.stop)
                versions.append(version)
        measure(kinds, versions, rounds=options.rounds)
        print_tables(kinds, versions)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
