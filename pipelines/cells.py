"""Cells of a text column to their translations: each row gets one, and a status that says how.

Nothing here knows of files or of Beam: `translate` reads the cells and writes what comes back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from model.config import MAX_SOURCE_TOKENS
from model.translation import Hypothesis, TranslatorLike, Work
from model.vocabulary import is_empty

OK = "ok"
NULL = "null"  # a null cell: no translation
EMPTY = "empty"  # nothing to translate in it: the translation is ""
TOO_LONG = "too_long"  # more tokens than max_source_tokens: no translation
SPLIT = "split"  # too long as well: translated in pieces
FAILED = "failed"  # not UTF-8: no translation
STATUSES = (OK, NULL, EMPTY, TOO_LONG, SPLIT, FAILED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellOptions:
    """How cells are treated.

    Attributes:
      max_source_tokens: The most ids of a text, BOS and EOS counted.
    """

    max_source_tokens: int = MAX_SOURCE_TOKENS


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedCell:
    """What a row gets.

    Attributes:
      translation: The best translation, or None.
      score: Its log-probability, or None.
      status: One of STATUSES.
      error: Why it failed, or None.
      n_best: Of a translated cell, the hypotheses, best first; of others none.
    """

    translation: str | None
    score: float | None
    status: str
    error: str | None = None
    n_best: tuple[Hypothesis, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedCells:
    """What `translate_cells` returns.

    Attributes:
      cells: One for each row, in order.
      texts: Texts that had to be translated, each occurrence counted.
      distinct_texts: Those that were: each distinct text is translated once.
      work: What it took.
    """

    cells: list[TranslatedCell]
    texts: int
    distinct_texts: int
    work: Work


def translate_cells(
    cells: Sequence[bytes | None], *, translator: TranslatorLike, options: CellOptions
) -> TranslatedCells:
    """Translates each distinct text once and gives every row its translation, score and status.

    Args:
      cells: The bytes of a text, or None, for each row.
      translator: The model.
      options: How cells are treated.
    """
    results: dict[bytes | None, TranslatedCell] = {None: _without_translation(NULL)}
    texts: dict[bytes, str] = {}
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        try:
            texts[cell] = cell.decode()
        except UnicodeDecodeError as error:
            results[cell] = _without_translation(FAILED, error=f"not UTF-8: {error.reason}")
    to_translate: list[tuple[bytes, list[int]]] = []
    for cell, ids in zip(texts, translator.encode(list(texts.values())), strict=True):
        if is_empty(ids):
            results[cell] = TranslatedCell(translation="", score=None, status=EMPTY)
        elif len(ids) > options.max_source_tokens:
            results[cell] = _without_translation(TOO_LONG)
        else:
            to_translate.append((cell, ids))
    translations, work = translator.translate_ids([ids for _, ids in to_translate])
    for (cell, _), translation in zip(to_translate, translations, strict=True):
        results[cell] = TranslatedCell(
            translation=translation.text,
            score=translation.score,
            status=OK,
            n_best=translation.hypotheses,
        )
    rows = [results[cell] for cell in cells]
    return TranslatedCells(
        cells=rows,
        texts=sum(row.status == OK for row in rows),
        distinct_texts=len(to_translate),
        work=work,
    )


def _without_translation(status: str, error: str | None = None) -> TranslatedCell:
    return TranslatedCell(translation=None, score=None, status=status, error=error)
