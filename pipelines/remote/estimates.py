"""What a job is reckoned to take, from figures that were measured and from no others.

The figures are those of docs/measurements.md, of one core of an AMD EPYC (Zen 3). Other machines
are faster or slower, and a virtual core of a cloud may be half of one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    WorkerOptions,
)

from model.engines.machine import cores
from model.errors import counted
from pipelines.remote.machines import count_cores
from pipelines.runners.beam_options import (
    has_direct_workers,
    is_dataflow,
    local_workers,
    parse_arguments,
)
from pipelines.runners.formatting import format_price, format_seconds

# "Preprocessing": pairs a second of one core with all default filters and scripts, and the bytes of
# the texts of such a pair.
_PAIRS_PER_SECOND = 27_527
_PAIR_BYTES = 392

# "Translation speed: the decoder": sentences a second of one core, greedily and with beam 4, the
# weights of these models' layers, and the characters of such a sentence.
_SENTENCES_PER_SECOND = {"tiny": (504, 178), "base": (22, 11)}
_LAYER_WEIGHTS = {"tiny": 1_835_008, "base": 44_040_192}
_SENTENCE_CHARACTERS = 61
_BEAM = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """The work of a job.

    Attributes:
      core_seconds: Seconds that one core would work; None where nothing like it was measured.
      basis: The figure that it is reckoned from, and where that stands, or why there is none.
      requests: Requests to an object store, where the output lies on one; else None.
    """

    core_seconds: float | None
    basis: str
    requests: int | None = None

    def describe(
        self, arguments: Sequence[str], *, price_per_hour: float | None = None
    ) -> list[str]:
        """Says it in lines.

        Args:
          arguments: Beam's own flags, with those that the job adds.
          price_per_hour: Price of all machines together, in any currency.

        Raises:
          UserError: Beam cannot read a flag.
        """
        lines = []
        if self.requests is not None:
            lines.append(f"requests: about {self.requests:,} to the object store, if none fails")
        if self.core_seconds is None:
            return [*lines, f"time: not reckoned, as {self.basis}"]
        workers, each = count_workers(arguments)
        seconds = self.core_seconds / (workers * each)
        where = f"{counted(workers, 'worker')} of {counted(each, 'core')}"
        if has_direct_workers(arguments):
            where = f"{counted(each, 'core')} of this machine"
        lines += [
            f"work: {_about(self.core_seconds)} of one core, reckoned with {self.basis}",
            f"time: {_about(seconds)} on {where}, without start and end",
        ]
        if price_per_hour is not None:
            price = format_price(price_per_hour * seconds / 3600)
            lines.append(f"price: about {price}, at {format_price(price_per_hour)} an hour")
        return lines


def _about(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 60 else "less than a minute"


def count_workers(arguments: Sequence[str]) -> tuple[int, int]:
    """Returns the workers that a job may have, and the cores of each.

    Where Beam's flags name no number, that is one: Dataflow chooses by itself.

    Raises:
      UserError: Beam cannot read a flag.
    """
    options = parse_arguments(arguments)
    if has_direct_workers(arguments):
        return 1, local_workers(arguments) or cores()
    if is_dataflow(arguments):
        worker = options.view_as(WorkerOptions)
        workers = worker.max_num_workers or worker.num_workers or 1
        return workers, count_cores(worker.machine_type or "") or 1
    return max(1, options.view_as(FlinkRunnerOptions).parallelism), 1


def count_slots(arguments: Sequence[str]) -> int:
    """Return how many elements a job works on at the same time: its workers times their threads.

    Args:
      arguments: Beam's own flags, with those that the job adds.

    Raises:
      UserError: Beam cannot read a flag.
    """
    workers, threads = count_workers(arguments)
    if is_dataflow(arguments):
        options = parse_arguments(arguments).view_as(DebugOptions)
        threads = options.number_of_worker_harness_threads or threads
    return workers * threads


def estimate_preprocess(
    *,
    text_bytes: int,
    files: int,
    units: int,
    shards: int,
    is_remote: bool,
    is_in_place: bool = False,
    unopened_files: int = 0,
) -> Estimate:
    """Reckons what a dataset takes, without the training of a vocabulary.

    Args:
      text_bytes: Of all texts, without compression.
      files: Files of the corpora.
      units: Units of work, about.
      shards: Of all splits.
      is_remote: Whether the dataset is to lie on an object store.
      is_in_place: Whether units are read in the corpora, as those of Parquet are; others are
        written as chunks first.
      unopened_files: Those of the files that nobody looks into beforehand: of TSV, of a pattern.
    """
    # Counted by tests/engines/dataflow/test_dry_run.py. Each shard reads a part of every unit. The
    # rest of a unit's requests write its files, read its rows twice (the first pass finds the
    # validation pairs), check after each read that the corpus is unchanged, and make its chunk.
    of_file, of_unit = (13, 15 + shards) if is_in_place else (10, 24 + shards)
    return Estimate(
        core_seconds=text_bytes / _PAIR_BYTES / _PAIRS_PER_SECOND,
        basis=f"{_PAIRS_PER_SECOND:,} pairs of {_PAIR_BYTES} bytes a second "
        "(docs/measurements.md#preprocessing), without training a vocabulary",
        requests=(
            50 + of_file * files - 5 * unopened_files + 7 * shards + units * of_unit
            if is_remote
            else None
        ),
    )


def estimate_translation(
    *,
    characters: float,
    layer_weights: int | None,
    beam_size: int,
    files: int,
    units: int,
    divided: int = 0,
    is_remote: bool,
    has_accelerator: bool = False,
) -> Estimate:
    """Reckons what a translation of tables takes.

    Args:
      characters: Of all texts.
      layer_weights: Of the model's layers, see `count_layer_weights`; None of one of another kind.
      beam_size: Hypotheses of the search; 1 is greedy search.
      files: Input files.
      units: Units of work.
      divided: Those of them that are not a whole file.
      is_remote: Whether the output is to lie on an object store.
      has_accelerator: Whether GPUs translate.
    """
    # Counted as those above.
    requests = 26 + 2 * files + 13 * units + 3 * divided if is_remote else None
    if has_accelerator or layer_weights is None:
        what = "no GPU" if has_accelerator else "no model of this kind"
        return Estimate(core_seconds=None, basis=f"{what} has been measured", requests=requests)
    name = min(_LAYER_WEIGHTS, key=lambda name: abs(math.log(_LAYER_WEIGHTS[name] / layer_weights)))
    greedy, beam = _SENTENCES_PER_SECOND[name]
    rate, search = (greedy, "greedy") if beam_size == 1 else (beam, f"beam {_BEAM}")
    share = layer_weights / _LAYER_WEIGHTS[name] * (1 if beam_size == 1 else beam_size / _BEAM)
    scaled = "" if math.isclose(share, 1) else f", times {share:.2g} for this model and search"
    return Estimate(
        core_seconds=characters / _SENTENCE_CHARACTERS / rate * share,
        basis=f"{rate} sentences of {_SENTENCE_CHARACTERS} characters a second ({name}, {search}, "
        f"docs/measurements.md#translation-speed-the-decoder){scaled}",
        requests=requests,
    )


def count_layer_weights(config: Mapping[str, Any]) -> int:
    """Counts the weights of all layers' matrices: those that each token meets.

    >>> count_layer_weights({"layers": 6, "d_model": 512, "d_ff": 2048})
    44040192
    """
    width, inner = (int(config[name]) for name in ("d_model", "d_ff"))
    sides = ("encoder_layers", "decoder_layers")
    encoder, decoder = (int(config.get(side) or config["layers"]) for side in sides)
    # An encoder layer has 4 matrices of attention and 2 of feed-forward, a decoder layer 8 and 2.
    of_encoder, of_decoder = (n * width * width + 2 * width * inner for n in (4, 8))
    return encoder * of_encoder + decoder * of_decoder
