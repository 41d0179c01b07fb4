"""Translate lines: one output line per input line."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import IO

from tt.model.engines.batching import begin_rows
from tt.model.engines.translator import Hypothesis
from tt.model.errors import UserError, counted
from tt.model.formats.model_card import TrainingData
from tt.pipelines.inference.text_model import TextModel
from tt.pipelines.texts import results
from tt.pipelines.texts.languages import describe_other_texts
from tt.pipelines.texts.results import TermCounts, TranslatedText
from tt.pipelines.texts.sentences import LINE_BREAK

CHUNK = 1024  # lines that are sorted by length and batched together, per GPU if there are several
_SHOWN = 10  # line numbers that a report shows for each status or flag
# Statuses that a report does not list.
_PLAIN = (results.OK, results.NULL, results.EMPTY, results.COPIED)


class OutputError(UserError):
    """Translations cannot be written."""


@dataclasses.dataclass
class LineReport:
    """A report on the lines with a flag, or with a status that is not in `_PLAIN`.

    Attributes:
      counts: Number of lines by status or flag.
      failed: Number of lines that failed.
      places: Numbers of the first lines with a status or flag, counted from 1, with the error if
        there is one.
      done: Number of lines that were translated and written.
      terms: Number of glossary terms found in the lines, and kept in the translations.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: int = 0
    places: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    done: int = 0
    terms: TermCounts = dataclasses.field(default_factory=collections.Counter)

    def add(self, text: TranslatedText, *, number: int) -> None:
        """Add a line to the report.

        Args:
          text: The translation of the line.
          number: The line number, counted from 1.
        """
        self.failed += text.status == results.FAILED
        found = {f"flagged as {flag!r}": "" for flag in text.flags if flag != text.status}
        if text.status not in _PLAIN:
            found = {f"with status {text.status!r}": text.error or "", **found}
        for each, error in found.items():
            self.counts[each] += 1
            places = self.places.setdefault(each, [])
            if len(places) < _SHOWN:
                places.append(f"{number}: {error}" if error else f"{number}")

    def lines(self) -> list[str]:
        """Return one line per status and flag, with the number of lines and the first places."""
        found = [
            f"{counted(self.counts[each], 'line')} {each} (at {', '.join(places)}"
            + (", ...)" if self.counts[each] > len(places) else ")")
            for each, places in self.places.items()
        ]
        if wanted := self.terms["found"]:
            found.append(f"glossary: {self.terms['kept']:,} of {wanted:,} terms kept")
        return found


def translate_lines(
    source: IO[bytes],
    output: IO[bytes],
    *,
    model: TextModel,
    report: LineReport,
    scored: int = 0,
    chunk: int = CHUNK,
    data: TrainingData | None = None,
    warn: Callable[[str], object] = lambda line: None,
) -> None:
    r"""Translate lines, and write one translation per line.

    Only \n ends a line, so other line separators inside a text do not change the number of lines.
    If the source is a terminal, each line is translated immediately.

    Args:
      source: Lines in UTF-8. Lines in other encodings get the status "failed".
      output: Receives the translations in UTF-8.
      model: The model.
      report: The report to which the lines are added.
      scored: Number of lines `score ||| text` to write per source line; 0 writes only the best
        text.
      chunk: Number of lines to read before translating them.
      data: The model's training data; None skips the check of the language.
      warn: Receives a warning if the first chunk is in another language than the training data.

    Raises:
      OutputError: The output cannot be written, for example because a disk is full.
      BrokenPipeError: The reader of the output has closed it.
    """
    numbers = itertools.count(1)
    size = 1 if source.isatty() else chunk
    while lines := list(itertools.islice(source, size)):
        texts = [line.rstrip(b"\r\n") for line in lines]
        if data is not None and report.done == 0:
            decoded = [text.decode(errors="ignore") for text in texts]
            for warning in describe_other_texts(decoded, data=data):
                warn(warning)
        with begin_rows(len(texts)):
            found = model.translate(texts)
        report.terms += found.terms
        made: list[str] = []
        for text, number in zip(found.translations, numbers):  # noqa: B905 -- numbers are endless
            report.add(text, number=number)
            made += format_line(text, scored)
        _write(made, output)
        report.done += len(lines)


def explain_lines(source: IO[bytes], output: IO[bytes], *, model: TextModel) -> None:
    """Explain the translation of each line; see `explain`. A blank line ends each explanation.

    Raises:
      OutputError: The output cannot be written, for example because a disk is full.
      BrokenPipeError: The reader of the output has closed it.
    """
    for number, line in enumerate(source, 1):
        text = line.rstrip(b"\r\n")
        shown = text.decode(errors="backslashreplace")
        _write([f"line {number}: {shown!r}", *model.explain(text), ""], output)


def _write(lines: Iterable[str], output: IO[bytes]) -> None:
    try:
        output.write("".join(f"{line}\n" for line in lines).encode())
        output.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"the translations cannot be written to stdout: {error.strerror}. Free some space, "
            "or redirect stdout to another disk"
        ) from error


def format_line(text: TranslatedText, scored: int) -> list[str]:
    """Return the output lines for a source line.

    A missing translation becomes `-inf ||| ` without a text. A text that needs no translation has
    the score 0.

    Args:
      text: The translation of the line.
      scored: Number of lines `score ||| text`; 0 returns only the best text.
    """
    if not scored:
        return [_on_one_line(text.translation or "")]
    hypotheses = text.n_best
    if not hypotheses and text.translation is not None:
        hypotheses = (Hypothesis(text.translation, 0.0),)
    missing = (Hypothesis("", -math.inf),) * (scored - len(hypotheses))
    return [f"{h.score:.6f} ||| {_on_one_line(h.text)}" for h in hypotheses + missing]


def _on_one_line(text: str) -> str:
    return str(LINE_BREAK.sub(" ", text))
