"""Measure the decoder against CTranslate2: same weights, same sentences, equal threads.

    python tests/bench/decode.py run test.en.gz
    python tests/bench/decode.py run test.en.gz --beam-sizes 4 --rounds 9 --threads 2

The model is a run folder or an exported model folder. The text has one sentence per line. Each
competitor is a separate process, pinned to the same cores. The competitors take turns, in another
order each round, and ratios are computed within a round, so that other work on the machine has
less weight. Both get all sentences at once, as ids or as pieces, sort them by length, and cut them
into batches of the size that was fastest for them in the warm-up. Both rank hypotheses only by
log-probability (a length penalty of 0), which allows both to stop early.

The exit code is 1 if a limit is missed, unless --no-limits is given.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preprocess import Target, judge
from processes import CommandError, available_cores
from train import Competitor

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.transformer.search_options import Decoding
from tt.pipelines.reports.evaluate import read_lines

_PADDED_TOKENS = (2048, 4096, 8192, 16_384)  # per batch of tt, over all beams
_EXAMPLES = (32, 64, 128, 256, 512)  # per batch of CTranslate2
_TIMED = 2  # trials of each batch size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contestant:
    """An engine with a compute type that takes part.

    Attributes:
      name: The name in the results.
      engine: tensorflow or ctranslate2.
      compute_type: The compute type of the engine.
      isa: The value of CT2_FORCE_CPU_ISA. If it is empty, CTranslate2 chooses.
    """

    name: str
    engine: str
    compute_type: str
    isa: str = ""


_OURS = Contestant(name="tt float32", engine="tensorflow", compute_type="float32")
_OURS_BFLOAT16 = Contestant(name="tt bfloat16", engine="tensorflow", compute_type="bfloat16")
_PEER = Contestant(name="CTranslate2 float32", engine="ctranslate2", compute_type="float32")
_PEER_AVX512 = dataclasses.replace(_PEER, name="CTranslate2 float32 AVX512", isa="AVX512")
_PEER_INT8 = Contestant(name="CTranslate2 int8", engine="ctranslate2", compute_type="int8")
_CONTESTANTS = {c.name: c for c in (_OURS, _PEER, _PEER_AVX512, _OURS_BFLOAT16, _PEER_INT8)}

_GREEDY_LIMIT, _BEAM_LIMIT, _BFLOAT16_LIMIT = 1.0, 0.95, 0.85


def serve(work: Callable[[int], Any], sizes: tuple[int, ...]) -> None:
    """Find the fastest batch size, then translate on each signal and print the time."""

    def seconds(size: int) -> float:
        start = time.perf_counter()
        work(size)
        return time.perf_counter() - start

    work(sizes[0])  # traces
    best = min(sizes, key=lambda size: min(seconds(size) for _ in range(_TIMED)))
    for _ in sys.stdin:
        print(f"{seconds(best)} seconds, batches of {best}", flush=True)


def serve_tensorflow(
    model: str, texts: list[str], *, decoding: Decoding, compute_type: str
) -> None:
    """Act as a competitor: an unmodified `TensorFlowTranslator`."""
    from tt.model.engines.tensorflow_engine import TensorFlowTranslator

    translators = {
        size: TensorFlowTranslator.load(
            model,
            decoding=dataclasses.replace(decoding, batch_tokens=size),
            compute_type=compute_type,
        )
        for size in _PADDED_TOKENS
    }
    ids = translators[_PADDED_TOKENS[0]].encode(texts)
    serve(lambda size: translators[size].translate_ids(ids), _PADDED_TOKENS)


def serve_ctranslate2(
    model: str, texts: list[str], *, decoding: Decoding, compute_type: str, threads: int
) -> None:
    """Act as a competitor: CTranslate2, which sorts texts and cuts batches itself."""
    import ctranslate2

    from tt.model.formats.foreign import load_tokens
    from tt.model.text.vocabulary import load_vocabularies

    tokens = load_tokens(Path(model), "source")
    rows = load_vocabularies(model).source.encode(texts)
    pieces = [[tokens[i] for i in row[1:-1]] for row in rows]
    translator = ctranslate2.Translator(
        model, compute_type=compute_type, inter_threads=1, intra_threads=threads
    )

    def work(size: int) -> None:
        translator.translate_batch(
            pieces,
            beam_size=decoding.beam_size,
            length_penalty=0,
            max_batch_size=size,
            batch_type="examples",
            return_scores=True,
        )

    serve(work, _EXAMPLES)


def measure(
    contestants: list[Contestant], *, options: argparse.Namespace, beam_size: int, folder: Path
) -> dict[str, list[float]]:
    """Return the sentences per second of each contestant, round by round."""
    from tt.model.engines.loading import convert

    count = len(_read(options))
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    with contextlib.ExitStack() as stack:
        competitors = []
        for contestant in contestants:
            is_ours = contestant.engine == "tensorflow"
            command = [
                sys.executable, __file__, options.model if is_ours else str(convert(options.model)),
                options.text, "--serve", contestant.name, "--beam-sizes", str(beam_size),
                "--threads", str(options.threads), "--sentences", str(options.sentences),
            ]  # fmt: skip
            # `tt` sets the same value. TensorFlow reads it on import, and this module imports
            # TensorFlow.
            uses_onednn = contestant.compute_type != "float32"
            variables = [f"TF_ENABLE_ONEDNN_OPTS={int(uses_onednn)}"]
            if contestant.isa:
                variables.append(f"CT2_FORCE_CPU_ISA={contestant.isa}")
            command = ["env", *variables, *command]
            competitors.append(Competitor(contestant.name, command, folder=folder))
            stack.callback(competitors[-1].stop)
        for competitor in competitors:  # the warm-up, one after the other
            competitor.seconds(0, 1)
        for number in range(options.rounds):
            turn = number % len(competitors)
            for competitor in competitors[turn:] + competitors[:turn]:
                rates[competitor.name].append(count / competitor.seconds(0, 1))
            said = ", ".join(f"{name} {rate[-1]:.0f}/s" for name, rate in rates.items())
            print(f"beam {beam_size}  round {number + 1}/{options.rounds}: {said}", file=sys.stderr)
    return rates


def print_and_judge(rates: dict[str, list[float]], *, beam_size: int) -> list[Target]:
    """Print one line per contestant with medians over the rounds, and return the limits."""

    def ratios(ours: Contestant, theirs: Contestant) -> list[float]:
        pairs = zip(rates[ours.name], rates[theirs.name], strict=True)
        return [mine / its for mine, its in pairs]

    print(
        f"beam {beam_size}: {'':26s} {'sentences/s':>12s} {'tt float32 / it':>16s} {'(range)':>12s}"
    )
    for name, measured in rates.items():
        paired = ratios(_OURS, _CONTESTANTS[name])
        print(
            f"  {name:34s} {statistics.median(measured):10,.1f} "
            f"{statistics.median(paired):16.2f} {f'{min(paired):.2f}-{max(paired):.2f}':>12s}"
        )
    peers = [c for c in (_PEER, _PEER_AVX512) if c.name in rates]
    targets = [
        Target(
            rule=f"beam {beam_size}, float32, tt's speed relative to the faster CTranslate2",
            value=min(statistics.median(ratios(_OURS, peer)) for peer in peers),
            bound=_GREEDY_LIMIT if beam_size == 1 else _BEAM_LIMIT,
        )
    ]
    if _OURS_BFLOAT16.name in rates:
        targets.append(
            Target(
                rule=f"beam {beam_size}, bfloat16, tt's speed relative to CTranslate2 int8",
                value=statistics.median(ratios(_OURS_BFLOAT16, _PEER_INT8)),
                bound=_BFLOAT16_LIMIT,
            )
        )
    return targets


def _read(options: argparse.Namespace) -> list[str]:
    lines = [line for line in read_lines(options.text) if line.strip()]
    return list(itertools.islice(itertools.cycle(lines), options.sentences or len(lines)))


def _cpu_flags() -> set[str]:
    with contextlib.suppress(OSError):
        return set(Path("/proc/cpuinfo").read_text().split())
    return set()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("text", help="Translate this file (text or .gz), one sentence per line.")
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--sentences", type=int, default=0, help="Translate only this many sentences."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=1, help="Give each competitor this many threads and cores."
    )
    parser.add_argument(
        "--bfloat16", action="store_true", help="Compare bfloat16 with CTranslate2's int8, too."
    )
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    # This program starts itself for each competitor.
    parser.add_argument("--serve", choices=_CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 1 <= options.threads <= len(available_cores()):
        parser.error(
            f"--threads must be 1 to {len(available_cores())}, the cores of this process. "
            f"Received: {options.threads}"
        )
    return options


def main() -> None:
    """Measure all beam sizes, and report whether the limits are met."""
    options = _parse()
    os.sched_setaffinity(0, available_cores()[: options.threads])  # also for its child processes
    if options.serve:
        contestant, texts = _CONTESTANTS[options.serve], _read(options)
        decoding = Decoding(beam_size=options.beam_sizes[0], length_penalty=0.0)
        if contestant.engine == "tensorflow":
            from tt.model.engines.machine import keep_freed_memory, set_threads

            keep_freed_memory()
            set_threads(options.threads)
            serve_tensorflow(
                options.model, texts, decoding=decoding, compute_type=contestant.compute_type
            )
        else:
            serve_ctranslate2(
                options.model,
                texts,
                decoding=decoding,
                compute_type=contestant.compute_type,
                threads=options.threads,
            )
        return
    contestants = [_OURS, _PEER]
    if "avx512f" in _cpu_flags():
        contestants.append(_PEER_AVX512)
    if options.bfloat16:
        contestants += [_OURS_BFLOAT16, _PEER_INT8]
    judged = []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        for beam_size in options.beam_sizes:
            rates = measure(contestants, options=options, beam_size=beam_size, folder=Path(folder))
            judged += print_and_judge(rates, beam_size=beam_size)
    judge(judged, has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
