"""`tt translate`: stdin to stdout, a line for a line."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import os
import sys
import time
from typing import IO, TYPE_CHECKING, TextIO

import typer

from cli.options import (
    DEFAULT_RUN,
    BatchTokens,
    BeamSize,
    ComputeType,
    EngineName,
    LengthPenalty,
    MaxDecodingLength,
    MaxLengthRatio,
    MaxSourceTokens,
    ModelFolder,
    NBest,
    NoRepeatNgramSize,
    OnTooLong,
    TextLanguage,
    WithScores,
    command,
    local_path,
    prepare_engine,
    say,
    say_what_is_awaited,
    warn_of_language,
    warn_of_missing_digests,
)
from model.engines.translator import Hypothesis, TranslatorLike
from model.engines.under_way import begin_rows, rows_under_way
from model.errors import UserError
from model.transformer.config import MAX_SOURCE_TOKENS, Decoding, Engine
from pipelines.runners.status_line import StatusLine, format_seconds

if TYPE_CHECKING:
    from model.formats.about import TrainingData
    from pipelines.texts.translating import CellOptions, TranslatedCell

_DECODING = Decoding()
_ENGINE = Engine()
CHUNK = 1024  # lines that are sorted by length and batched together
_LOOK_SECONDS = 1.0
SHOWN = 10  # places of a kind that a report names
BROKEN_PIPE = 128 + 13  # what shells say of a program that SIGPIPE ended


@command
def translate_command(
    model: ModelFolder = str(DEFAULT_RUN),
    engine_name: EngineName = _ENGINE.name,
    compute_type: ComputeType = _ENGINE.compute_type,
    max_source_tokens: MaxSourceTokens = MAX_SOURCE_TOKENS,
    on_too_long: OnTooLong = "split",
    source_language: TextLanguage = "",
    batch_tokens: BatchTokens = None,
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
    n_best: NBest = _DECODING.n_best,
    with_scores: WithScores = False,
    max_length_ratio: MaxLengthRatio = _DECODING.max_length_ratio,
    max_decoding_length: MaxDecodingLength = _DECODING.max_decoding_length,
    no_repeat_ngram_size: NoRepeatNgramSize = _DECODING.no_repeat_ngram_size,
) -> None:
    """Translate stdin to stdout, a line for a line.

    With --n-best N, it is N lines for a line. Where a line fails, its translation is empty and the
    exit code is 1 at the end.
    """
    from pipelines.texts.translating import CellOptions

    if sys.stdin is None or sys.stdout is None:
        raise UserError("stdin or stdout is closed: redirect both, from a text and to a file")
    decoding = Decoding(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        max_length_ratio=max_length_ratio,
        max_decoding_length=max_decoding_length,
        no_repeat_ngram_size=no_repeat_ngram_size,
        batch_tokens=batch_tokens,
    )
    options = CellOptions(
        max_source_tokens=max_source_tokens,
        on_too_long=on_too_long,
        source_language=source_language,
    )
    engine = Engine(name=engine_name, compute_type=compute_type)
    warn_of_language(source_language)
    folder = local_path(model)
    from model.engines.loading import check_engine, load_translator
    from model.formats.model_folder import load_about
    from pipelines.texts.model_languages import choose_source_language, describe_other_language

    check_engine(folder, decoding=decoding, engine=engine, max_source_tokens=max_source_tokens)
    warn_of_missing_digests(folder, name=model)
    data = load_about(folder).data
    options = dataclasses.replace(
        options, source_language=choose_source_language(source_language, data=data)
    )
    for line in describe_other_language(source_language, data=data):
        say(f"tt: warning: {line}")
    prepare_engine(folder, engine)
    translator = load_translator(str(folder), decoding=decoding, engine=engine)
    say_what_is_awaited(sys.stdin)
    report = Report(max_source_tokens=max_source_tokens)
    try:
        with watch(report, source=sys.stdin, output=sys.stdout, stream=sys.stderr):
            translate_lines(
                sys.stdin.buffer,
                sys.stdout.buffer,
                translator=translator,
                options=options,
                report=report,
                scored=n_best if n_best > 1 or with_scores else 0,
                data=data,
            )
    except (BrokenPipeError, OutputError) as error:
        # What is left in the buffer would raise once more when Python closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, OutputError):
            raise
        raise typer.Exit(BROKEN_PIPE) from None  # who reads has read enough: `| head`
    for line in report.lines():
        say(f"tt: {line}")
    if report.failed:
        raise typer.Exit(1)


def watch(
    report: Report, *, source: TextIO, output: TextIO, stream: TextIO
) -> contextlib.AbstractContextManager[object]:
    """Shows how many lines are translated, but to none who sees the translations.

    Args:
      report: Of the lines.
      source: Who types has an answer for each line.
      output: A terminal shows the translations.
      stream: Where it is shown.
    """
    if source.isatty():
        return contextlib.nullcontext()
    start = time.monotonic()
    return StatusLine(
        lambda: (
            f"translating: {report.done + rows_under_way():,} lines, "
            f"{format_seconds(time.monotonic() - start)}"
        ),
        interval=_LOOK_SECONDS,
        stream=stream,
        is_shown_on_terminals=not output.isatty(),
    )


class OutputError(UserError):
    """Translations cannot be written."""


@dataclasses.dataclass
class Report:
    """The lines that were not translated as they are.

    Attributes:
      max_source_tokens: Which ones are too long.
      counts: Of lines, by what became of them.
      failed: Lines that failed.
      places: By the same, the first line numbers, from 1, with the error of those that have one.
      done: Lines that have been translated, and written.
    """

    max_source_tokens: int
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: int = 0
    places: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    done: int = 0

    def add(self, cell: TranslatedCell, *, number: int) -> None:
        """Takes note of a line."""
        from pipelines.texts import translating as cells

        long = f"have more than {self.max_source_tokens} tokens and are"
        became = {
            cells.SPLIT: f"{long} translated in pieces",
            cells.TOO_LONG: f"{long} cut off there"
            if cell.translation is not None
            else f"{long} left empty",
            cells.UNKNOWN: "are mostly unknown to the model and are left empty",
            cells.FAILED: "failed and are left empty",
        }.get(cell.status)
        if became is None:
            return
        self.failed += cell.status == cells.FAILED
        self.counts[became] += 1
        places = self.places.setdefault(became, [])
        if len(places) < SHOWN:
            places.append(f"{number}: {cell.error}" if cell.error else f"{number}")

    def lines(self) -> list[str]:
        """Says what became of how many lines, and of which."""
        return [
            f"{self.counts[became]:,} line(s) {became} (line {', '.join(places)}"
            + (", ...)" if self.counts[became] > len(places) else ")")
            for became, places in self.places.items()
        ]


def translate_lines(
    source: IO[bytes],
    output: IO[bytes],
    *,
    translator: TranslatorLike,
    options: CellOptions,
    report: Report,
    scored: int = 0,
    chunk: int = CHUNK,
    data: TrainingData | None = None,
) -> None:
    r"""Writes a translation for each line, as the Parquet job translates cells.

    A line ends at \n alone, so separators inside a text do not break the count. On a terminal
    each line is answered at once.

    Args:
      source: UTF-8; a line that is not fails.
      output: Gets UTF-8.
      translator: The model.
      options: How lines are treated.
      report: Takes note of the lines.
      scored: Lines `score ||| text` for each line; 0 writes the best text alone.
      chunk: Lines read before they are translated.
      data: What the model was trained on: where the first chunk is plainly in another script,
        that is said.

    Raises:
      OutputError: The output is full.
      BrokenPipeError: Nobody reads it any more.
    """
    from pipelines.texts.model_languages import describe_other_script
    from pipelines.texts.translating import translate_cells

    numbers = itertools.count(1)
    size = 1 if source.isatty() else chunk
    while lines := list(itertools.islice(source, size)):
        texts = [line.rstrip(b"\r\n") for line in lines]
        if data is not None and report.done == 0:
            decoded = [text.decode(errors="ignore") for text in texts]
            for said in describe_other_script(decoded, data=data):
                say(f"tt: warning: {said}")
        with begin_rows(len(texts)):
            found = translate_cells(texts, translator=translator, options=options)
        made: list[str] = []
        for cell, number in zip(found.cells, numbers):  # noqa: B905 -- numbers do not end
            report.add(cell, number=number)
            made += format_cell(cell, scored)
        _write(output, made)
        report.done += len(lines)


def _write(output: IO[bytes], lines: list[str]) -> None:
    try:
        output.write("".join(f"{line}\n" for line in lines).encode())
        output.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"the translations cannot be written to stdout: {error.strerror}. Make room, or "
            "redirect stdout to another place"
        ) from error


def format_cell(cell: TranslatedCell, scored: int) -> list[str]:
    """Returns the lines of a source: its best text, or `scored` lines `score ||| text`.

    What is missing of those is `-inf ||| ` with no text: a text that was found less often, or in
    pieces, or not at all. Nothing to translate has the score 0.
    """
    if not scored:
        return [_on_one_line(cell.translation or "")]
    hypotheses = cell.n_best
    if not hypotheses and cell.translation == "":
        hypotheses = (Hypothesis("", 0.0),)
    missing = (Hypothesis("", -math.inf),) * (scored - len(hypotheses))
    return [f"{h.score:.6f} ||| {_on_one_line(h.text)}" for h in hypotheses + missing]


def _on_one_line(text: str) -> str:
    return text.replace("\n", " ")
