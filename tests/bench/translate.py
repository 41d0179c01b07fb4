"""Measure `tt translate-batch` against only the decoder: same model, sentences and cores.

    python tests/bench/translate.py run train.en.gz other.en.gz
    python tests/bench/translate.py run train.en.gz --rows 20000 --engine ctranslate2 --threads 2

The model is a run folder or an exported model folder. The table has the lines of the texts in
random order, and thus of all lengths that are not split, 2% nulls, 1% empty texts, and columns of
ints, nested lists and timestamps. The job reads it, tokenizes, translates and writes all columns,
with its own batches and one model copy per core.

"Bare" has the ids of all sentences of the table in memory, sorted by length over the whole table
and cut into batches of its fastest size. It translates equal sentences every time, but the job
translates them once per unit. The ratio of target ids per second shows this difference. TensorFlow
has one Python thread per model copy of the job, and the threads take the batches in turn
(`TensorFlowTranslator.translate_ids`). CTranslate2 has the batches in one queue (`translate_batch`
with inter_threads), each with the job's length limit, so that no sentence runs longer than in the
job.

Job and bare run alternately, each as a new process pinned to the same cores, in another order each
round. Ratios are computed within a round, so that other work on the machine has less weight. Both
times exclude the start, which loads the model and translates one sentence to trace it. For the job,
the start is the time of the same command with --limit 1 in the same round. The clock of bare starts
after the trace. Nothing else is excluded.

The exit code is 1 if a limit is missed, unless --no-limits is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from preprocess import Target, judge
from processes import CommandError, Finished, available_cores, run

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.translator import ENGINES
from tt.model.transformer.search_options import MAX_SOURCE_TOKENS, Decoding

Row = TypeVar("Row", list[int], list[str])

_TT = Path(sys.executable).with_name("tt")

_LIMIT = 0.90  # the smallest ratio of the job's speed to bare's

_NULL_SHARE, _EMPTY_SHARE = 0.02, 0.01
_EMPTY_TEXTS = ("", "  ")
_ROW_GROUP_ROWS = 10_000
_SEED = 1

# Batch sizes to try for bare: padded source ids over all beams, or sentences.
_TOKENS = ("1024 tokens", "2048 tokens", "4096 tokens", "8192 tokens")
_SIZES = {
    "tensorflow": _TOKENS,
    "ctranslate2": (*_TOKENS, *(f"{size} sentences" for size in (32, 64, 128, 256, 512))),
}
_SAMPLE = 4096  # sentences for the trials
_TIMED = 2  # trials per size

_UNLIMITED = 10**9

# A model may reach the length limit. Bare has the same limit.
_TRANSLATED = ("ok", "incomplete")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """One run of the job and of bare.

    Attributes:
      command_seconds: The time of the whole job.
      start_up_seconds: The time of the same command with one row.
      bare_seconds: The time of only the decoder.
      manifest: The job's manifest.
      bare: The output of bare.
    """

    command_seconds: float
    start_up_seconds: float
    bare_seconds: float
    manifest: dict[str, Any]
    bare: dict[str, Any]

    @property
    def job_seconds(self) -> float:
        """The time of the job without the start."""
        return self.command_seconds - self.start_up_seconds

    @property
    def ratio(self) -> float:
        """The ratio of the job's speed to bare's."""
        return self.bare_seconds / self.job_seconds

    @property
    def token_ratio(self) -> float:
        """The ratio of the job's target tokens per second to bare's."""
        tokens: int = self.manifest["work"]["target_tokens"]
        return self.ratio * tokens / int(self.bare["target_tokens"])


# Roles that run in separate processes. Each prints a line of JSON.


def write_table(
    path: Path, *, model: str, texts: Sequence[str], rows: int, is_lowercase: bool
) -> dict[str, int]:
    """Write the table, and return its counts.

    Raises:
      CommandError: The texts have too few lines.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tt.model.text.vocabulary import is_empty, load_vocabularies
    from tt.pipelines.reports.evaluate import read_lines

    nulls, empties = round(_NULL_SHARE * rows), round(_EMPTY_SHARE * rows)
    wanted = rows - nulls - empties
    lines = [line for text in texts for line in read_lines(str(text))]
    if is_lowercase:
        lines = [line.lower() for line in lines]
    choice = random.Random(_SEED)
    choice.shuffle(lines)
    ids = load_vocabularies(_model_folder(model)).source.encode(lines)
    fitting = [
        line
        for line, row in zip(lines, ids, strict=True)
        if len(row) <= MAX_SOURCE_TOKENS and not is_empty(row)
    ]
    if len(fitting) < wanted:
        raise CommandError(
            f"the texts have {len(fitting):,} lines of at most {MAX_SOURCE_TOKENS} ids, but "
            f"{rows:,} rows need {wanted:,}. Add texts, or reduce --rows"
        )
    cells: list[str | None] = [
        *fitting[1:wanted],
        *[None] * nulls,
        *(_EMPTY_TEXTS[i % len(_EMPTY_TEXTS)] for i in range(empties)),
    ]
    choice.shuffle(cells)
    cells.insert(0, fitting[0])  # the row for --limit 1
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "text": pa.array(cells, pa.string()),
            "spans": [[[i % 7, i % 11], [i % 13]] if i % 5 else None for i in range(rows)],
            "seen": pa.array(
                [noon + datetime.timedelta(seconds=i) for i in range(rows)],
                pa.timestamp("us", "UTC"),
            ),
        }
    )
    pq.write_table(table, path, row_group_size=_ROW_GROUP_ROWS)
    lengths = sorted(len(row) for row in read_sources(path, model=model))
    return {
        "nulls": nulls,
        "empties": empties,
        "sentences": len(lengths),
        "shortest": lengths[0],
        "median": lengths[len(lengths) // 2],
        "longest": lengths[-1],
    }


def read_sources(path: Path, *, model: str) -> list[list[int]]:
    """Return the ids of the table's sentences, including BOS and EOS."""
    import pyarrow.parquet as pq

    from tt.model.text.vocabulary import is_empty, load_vocabularies

    cells = pq.read_table(path, columns=["text"])["text"].to_pylist()
    texts = [cell for cell in cells if cell is not None]
    ids = load_vocabularies(_model_folder(model)).source.encode(texts)
    return [row for row in ids if not is_empty(row)]


def cut(rows: Sequence[Row], size: str, *, beam_size: int) -> Iterator[list[Row]]:
    """Yield batches of similar length, the longest first.

    >>> list(cut([[1], [2, 2], [3]], "2 tokens", beam_size=1))
    [[[2, 2]], [[1], [3]]]
    """
    count, unit = size.split()
    ordered = sorted(rows, key=len, reverse=True)
    first = 0
    while first < len(ordered):
        longest = beam_size * len(ordered[first])
        taken = int(count) if unit == "sentences" else max(1, int(count) // longest)
        yield ordered[first : first + taken]
        first += taken


def bare_tensorflow(
    model: str, *, decoding: Decoding, copies: int, threads: int
) -> Callable[[list[list[list[int]]]], int]:
    """Return a function that translates batches of ids, and returns the number of target ids."""
    from concurrent.futures import ThreadPoolExecutor

    from tt.model.engines.machine import keep_freed_memory, set_threads
    from tt.model.engines.tensorflow_engine import TensorFlowTranslator

    keep_freed_memory()
    set_threads(threads)
    translator = TensorFlowTranslator.load(
        model, decoding=dataclasses.replace(decoding, batch_tokens=_UNLIMITED)
    )
    pool = ThreadPoolExecutor(copies)

    def translate(batches: list[list[list[int]]]) -> int:
        found = list(pool.map(translator.translate_ids, batches))
        return sum(work.target_tokens for _, work in found)

    return translate


def bare_ctranslate2(
    model: str, *, decoding: Decoding, copies: int, threads: int
) -> Callable[[list[list[list[str]]]], int]:
    """Return a function that translates batches of pieces, and returns the number of target ids."""
    import ctranslate2

    from tt.model.engines.loading import convert

    translator = ctranslate2.Translator(
        str(convert(model)),
        compute_type="float32",
        inter_threads=copies,
        intra_threads=threads,
    )

    def translate(batches: list[list[list[str]]]) -> int:
        queued = [
            translator.translate_batch(
                batch,
                beam_size=decoding.beam_size,
                length_penalty=decoding.length_penalty,
                # The limit of the longest row, with BOS and EOS. The last id is EOS.
                max_decoding_length=decoding.length_limit(len(batch[0]) + 2) - 1,
                max_input_length=0,
                return_scores=True,
                asynchronous=True,
            )
            for batch in batches
        ]
        found = [waiting.result() for results in queued for waiting in results]
        return sum(len(result.hypotheses[0]) + 1 for result in found)

    return translate


def run_bare(
    path: Path, *, model: str, engine: str, decoding: Decoding, size: str
) -> dict[str, Any]:
    """Translate the table's sentences; without a size, find the fastest size instead."""
    from tt.model.engines.loading import convert
    from tt.model.formats.foreign import load_tokens
    from tt.pipelines.inference.models_for_workers import plan_copies

    plan = plan_copies(None, beam_arguments=())  # the plan of the job
    assert plan.copies
    rows: list[Any] = read_sources(path, model=model)
    make: Callable[..., Callable[[list[Any]], int]] = bare_tensorflow
    if engine == "ctranslate2":
        make = bare_ctranslate2
        tokens = load_tokens(convert(model), "source")
        rows = [[tokens[i] for i in row[1:-1]] for row in rows]  # CTranslate2 adds BOS and EOS
    translate = make(model, decoding=decoding, copies=plan.copies, threads=plan.threads)
    translate([rows[:1]])  # traces, which is part of the start

    def measure(some: list[Any], size: str) -> tuple[float, int]:
        batches = list(cut(some, size, beam_size=decoding.beam_size))
        start = time.perf_counter()
        target_tokens = translate(batches)
        return time.perf_counter() - start, target_tokens

    if not size:
        sample = sorted(rows, key=len)[:: -(-len(rows) // _SAMPLE)]  # all lengths
        tried = {
            size: min(measure(sample, size)[0] for _ in range(_TIMED)) for size in _SIZES[engine]
        }
        return {"rates": {size: len(sample) / seconds for size, seconds in tried.items()}}
    seconds, target_tokens = measure(rows, size)
    return {
        "seconds": seconds,
        "sentences": len(rows),
        "target_tokens": target_tokens,
        "copies": plan.copies,
        "threads": plan.threads,
    }


def _model_folder(model: str) -> Path:
    from tt.model.formats.model_folder import find_model_folder

    return find_model_folder(model)


# Measurement


class Bench:
    """A runner of the job and bare on one table.

    Args:
      options: The parsed options.
      folder: A folder for the table and all outputs.

    Raises:
      CommandError: The table cannot be made.
    """

    def __init__(self, options: argparse.Namespace, *, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._table = folder / "rows.parquet"
        lowercase = ["--lowercase"] if options.lowercase else []
        self.content = self._call(
            "table", *options.texts, "--rows", str(options.rows), *lowercase
        ).json()

    def fastest_size(self, engine: str) -> str:
        """Return the fastest batch size for bare."""
        rates: dict[str, float] = self._call("bare", "--engine", engine).json()["rates"]
        said = ", ".join(f"{size} {rate:.0f}/s" for size, rate in rates.items())
        print(f"{engine}  bare, batches of: {said}", file=sys.stderr, flush=True)
        return max(rates, key=rates.__getitem__)

    def measure(self, engine: str, *, size: str, bare_first: bool) -> Round:
        """Run the job and bare once.

        Raises:
          CommandError: The job did not translate all rows, or it took no longer than its start.
        """
        bare = self._bare(engine, size=size) if bare_first else {}
        start_up, _ = self._translate(engine, arguments=["--limit", "1"])
        command, manifest = self._translate(engine)
        self._check(manifest)
        if command <= start_up:
            raise CommandError(
                f"the job took {command:.1f} s, but {start_up:.1f} s with one row. Increase "
                "--rows, or wait until the machine has less other work"
            )
        bare = bare or self._bare(engine, size=size)
        return Round(
            command_seconds=command,
            start_up_seconds=start_up,
            bare_seconds=bare["seconds"],
            manifest=manifest,
            bare=bare,
        )

    def _bare(self, engine: str, *, size: str) -> dict[str, Any]:
        return self._call("bare", "--engine", engine, "--size", size).json()

    def _translate(
        self, engine: str, arguments: Sequence[str] = ()
    ) -> tuple[float, dict[str, Any]]:
        """Run the job; return its seconds and its manifest."""
        with tempfile.TemporaryDirectory(dir=self._folder) as output:
            unit_rows = self._options.unit_rows
            finished = self._run(
                [
                    *(_TT, "translate-batch", self._table, "--output", output),
                    *("--text-column", "text", "--model", self._options.model),
                    *("--engine", engine, "--beam-size", str(self._options.beam_size)),
                    *(["--unit-rows", str(unit_rows)] if unit_rows else []),
                    *arguments,
                ]
            )
            return finished.seconds, json.loads(Path(output, "_tt/manifest.json").read_text())

    def _check(self, manifest: dict[str, Any]) -> None:
        content, rows = self.content, self._options.rows
        expected = {
            "translated": rows - content["nulls"] - content["empties"],
            "null": content["nulls"],
            "empty": content["empties"],
        }
        by_status = manifest["rows_by_status"]["text"]
        found = {status: n for status, n in by_status.items() if n and status not in _TRANSLATED}
        found["translated"] = sum(by_status.get(status, 0) for status in _TRANSLATED)
        if manifest["rows_out"] != rows or found != {k: n for k, n in expected.items() if n}:
            raise CommandError(
                f"the job wrote {manifest['rows_out']:,} rows, {found}; "
                f"expected {rows:,} rows, {expected}"
            )

    def _call(self, role: str, *arguments: str) -> Finished:
        """Run this program in one of its roles."""
        beams = str(self._options.beam_size)
        return self._run(
            [
                *(sys.executable, Path(__file__).resolve(), self._options.model, *arguments),
                *("--beam-size", beams, "--role", role, "--table", self._table),
            ]
        )

    def _run(self, command: Sequence[str | Path]) -> Finished:
        return run(
            command,
            cores=self._options.threads,
            folder=self._folder,
            environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
        )


def print_and_judge(engine: str, rounds: Sequence[Round], *, rows: int, size: str) -> Target:
    """Print medians over the rounds, and return the limit."""

    def median(value: Callable[[Round], float]) -> float:
        return statistics.median(map(value, rounds))

    last = rounds[-1]
    work, distinct = last.manifest["work"], last.manifest["distinct_texts"]
    ratios = [each.ratio for each in rounds]
    print(
        f"{engine}: {last.bare['copies']} parallel calls of {last.bare['threads']} thread(s)\n"
        f"  job   {median(lambda each: each.job_seconds):8.1f} s without the start "
        f"({median(lambda each: each.command_seconds):.1f} s with it, one row "
        f"{median(lambda each: each.start_up_seconds):.1f} s): "
        f"{rows / median(lambda each: each.job_seconds):,.0f} rows/s; {distinct:,} texts "
        f"distinct within their unit, {work['target_tokens']:,} target tokens, "
        f"{work['padding']:.1%} padding\n"
        f"  bare  {median(lambda each: each.bare_seconds):8.1f} s in batches of {size}: "
        f"{last.bare['sentences'] / median(lambda each: each.bare_seconds):,.0f} sentences/s; "
        f"{last.bare['sentences']:,} sentences, {last.bare['target_tokens']:,} target tokens\n"
        f"  ratio of job to bare in target tokens/s {median(lambda each: each.token_ratio):.2f}\n"
        f"  ratio of job to bare in speed {median(lambda each: each.ratio):.2f} "
        f"({min(ratios):.2f}-{max(ratios):.2f} in {len(rounds)} round(s))"
    )
    return Target(
        rule=f"{engine}, ratio of the job's speed to the decoder's",
        value=median(lambda each: each.ratio),
        bound=_LIMIT,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument(
        "texts", nargs="*", metavar="text", help="Read one sentence per line (text or .gz)."
    )
    parser.add_argument("--lowercase", action="store_true", help="Convert texts to lower case.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads",
        type=int,
        default=len(available_cores()),
        help="Give the job and bare this many threads and cores. Default: all.",
    )
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument(
        "--unit-rows",
        type=int,
        help="Limit the rows per unit of the job. Reduce it for few rows, or copies idle.",
    )
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    # This program starts itself to make the table and to run bare.
    parser.add_argument("--role", choices=("table", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.texts and options.role != "bare":
        parser.error("no text was given. Add a file with one sentence per line")
    for name, least in (("rows", 100), ("rounds", 1), ("beam_size", 1)):
        value = getattr(options, name)
        if value < least:
            flag = name.replace("_", "-")
            parser.error(f"--{flag} must be {least} or more. Received: {value}")
    if not 1 <= options.threads <= len(available_cores()):
        parser.error(
            f"--threads must be 1 to {len(available_cores())}, the cores of this process. "
            f"Received: {options.threads}"
        )
    for path in [options.model, *options.texts]:
        if not Path(path).exists():
            parser.error(f"{path} does not exist")
    options.model = str(Path(options.model).resolve())
    options.texts = [str(Path(text).resolve()) for text in options.texts]
    return options


def main() -> None:
    """Measure the engines and report whether the limits are met, or run as one of the processes."""
    options = _parse()
    if options.role == "table":
        content = write_table(
            options.table,
            model=options.model,
            texts=options.texts,
            rows=options.rows,
            is_lowercase=options.lowercase,
        )
        print(json.dumps(content))
        return
    if options.role == "bare":
        said = run_bare(
            options.table,
            model=options.model,
            engine=options.engine[0],
            decoding=Decoding(beam_size=options.beam_size),
            size=options.size,
        )
        print(json.dumps(said))
        return
    judged = []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        bench = Bench(options, folder=Path(folder))
        content = bench.content
        print(
            f"{options.rows:,} rows: {content['nulls']:,} nulls, {content['empties']:,} empty, "
            f"{content['sentences']:,} sentences of {content['shortest']} to "
            f"{content['longest']} ids, median {content['median']}; beam {options.beam_size}, "
            f"{options.threads} core(s)",
            flush=True,
        )
        for engine in options.engine:
            size = bench.fastest_size(engine)
            rounds = []
            for number in range(options.rounds):
                found = bench.measure(engine, size=size, bare_first=number % 2 == 1)
                rounds.append(found)
                print(
                    f"{engine}  round {number + 1}/{options.rounds}: "
                    f"job {found.command_seconds:.1f} s, "
                    f"one row {found.start_up_seconds:.1f} s, "
                    f"bare {found.bare_seconds:.1f} s: {found.ratio:.2f}",
                    file=sys.stderr,
                    flush=True,
                )
            judged.append(print_and_judge(engine, rounds, rows=options.rows, size=size))
    judge(judged, has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
