"""Lines to translations, a line for a line."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import IO

from tt.model.engines.batching import begin_rows
from tt.model.engines.translator import Hypothesis
from tt.model.errors import UserError, counted
from tt.model.formats.model_card import TrainingData
from tt.pipelines.inference.text_model import TextModel
from tt.pipelines.texts import translating
from tt.pipelines.texts.languages import describe_other_texts
from tt.pipelines.texts.segments import LINE_BREAK
from tt.pipelines.texts.translating import TermCounts, TranslatedText

_CHUNK = 1024  # lines that are sorted by length and batched together
_SHOWN = 10  # places of a kind that a report names
# Statuses that a report leaves out.
_PLAIN = (translating.OK, translating.NULL, translating.EMPTY, translating.COPIED)


class OutputError(UserError):
    """Translations cannot be written."""


@dataclasses.dataclass
class LineReport:
    """The lines that were not translated as they are, or whose translation is suspicious.

    Attributes:
      counts: Numbers of lines by their status or flag.
      failed: Lines that failed.
      places: First line numbers, from 1, by status or flag, with the error if there is one.
      done: Lines that have been translated and written.
      terms: Terms of the glossary in the lines, and those that the translations have.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: int = 0
    places: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    done: int = 0
    terms: TermCounts = dataclasses.field(default_factory=collections.Counter)

    def add(self, text: TranslatedText, *, number: int) -> None:
        """Take note of a line."""
        self.failed += text.status == translating.FAILED
        found = {f"flagged as {flag!r}": "" for flag in text.flags if flag != text.status}
        if text.status not in _PLAIN:
            found = {f"with status {text.status!r}": text.error or "", **found}
        for each, error in found.items():
            self.counts[each] += 1
            places = self.places.setdefault(each, [])
            if len(places) < _SHOWN:
                places.append(f"{number}: {error}" if error else f"{number}")

    def lines(self) -> list[str]:
        """Return a line for each status and flag: how many lines have it, and which."""
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
    chunk: int = _CHUNK,
    data: TrainingData | None = None,
    warn: Callable[[str], object] = lambda line: None,
) -> None:
    r"""Write a translation for each line.

    A line ends at \n alone, so separators inside a text do not break the count. On a terminal
    each line is answered at once.

    Args:
      source: UTF-8; a line that is not fails.
      output: Gets UTF-8.
      model: Translates lines.
      report: Takes note of the lines.
      scored: Lines `score ||| text` for each line; 0 writes the best text alone.
      chunk: Lines read before they are translated.
      data: What the model was trained on; None compares no scripts.
      warn: Takes a line if the first chunk is plainly in another script than that.

    Raises:
      OutputError: The output is full.
      BrokenPipeError: Nobody reads it any more.
    """
    numbers = itertools.count(1)
    size = 1 if source.isatty() else chunk
    while lines := list(itertools.islice(source, size)):
        texts = [line.rstrip(b"\r\n") for line in lines]
        if data is not None and report.done == 0:
            decoded = [text.decode(errors="ignore") for text in texts]
            for said in describe_other_texts(decoded, data=data):
                warn(said)
        with begin_rows(len(texts)):
            found = model.translate(texts)
        report.terms += found.terms
        made: list[str] = []
        for text, number in zip(found.translations, numbers):  # noqa: B905 -- numbers do not end
            report.add(text, number=number)
            made += format_line(text, scored)
        try:
            output.write("".join(f"{line}\n" for line in made).encode())
            output.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(
                f"the translations cannot be written to stdout: {error.strerror}. Make room, or "
                "redirect stdout to another place"
            ) from error
        report.done += len(lines)


def format_line(text: TranslatedText, scored: int) -> list[str]:
    """Return the lines of a source: its best text, or `scored` lines `score ||| text`.

    What is missing of those is `-inf ||| ` with no text: a text that was found less often, or not
    at all. A text that needs no translation has the score 0.
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
