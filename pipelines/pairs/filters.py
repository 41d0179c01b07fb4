"""The filters: which pairs are left out of the records, each with its reason code.

A filter never changes a text (that is `model.text.vocabulary.TextNormalization`'s part, which
translation shares): it only says why a pair is rejected. A pair is judged by itself: what it is
batched with changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.errors import UserError
from pipelines.pairs.characters import check_script, in_script, letters, white_space

EMPTY_SOURCE = "empty_source"
EMPTY_TARGET = "empty_target"
TOO_FEW_CHARACTERS = "too_few_characters"
TOO_MANY_CHARACTERS = "too_many_characters"
IDENTICAL = "identical"  # one side is a copy of the other
TOO_FEW_LETTERS = "too_few_letters"
WRONG_SCRIPT_SOURCE = "wrong_script_source"
WRONG_SCRIPT_TARGET = "wrong_script_target"
MOJIBAKE = "mojibake"  # bytes of UTF-8 were read as another encoding
TOO_SHORT = "too_short"  # in tokens
TOO_LONG = "too_long"  # in tokens
LENGTH_RATIO = "length_ratio"

LENGTH_SLACK = 8  # tokens: short texts, idioms and names differ more than any ratio allows

_COUNTER_BITS = 16
_COUNTER_MASK = np.uint64((1 << _COUNTER_BITS) - 1)
_MOST_CHARACTERS = (1 << _COUNTER_BITS) - 1
_COUNTED_AT_ONCE = 512  # texts: their code points and counters fit into the processor's cache

# The bytes 0x80 to 0xBF, which follow the first one of a character in UTF-8, read as Windows-1252.
# 0x81, 0x8D, 0x8F, 0x90, 0x9D and in Latin-1 all up to 0x9F are controls, 0xA0 is a space and 0xAD
# a soft hyphen: normalisation has deleted those by now.
_REST = "[€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ¡-¿]"

# What UTF-8 looks like when read as Windows-1252 or Latin-1, in RE2's syntax. Capitals before
# quotation marks, dashes or an ellipsis (MANHÃ…, »SMÅ«) are words and pass.
_MOJIBAKE = "|".join([
    r"\x{fffd}",  # the decoder's own mark
    r"[ÂÃ][¡-©¬¯-¶¸-º¼-¿€‚ƒ„†‡ˆ‰ŠŒŽ˜šœžŸ]",  # Â© £, Ã¤ Ã±: signs and letters of Western Europe
    r"(?:^|[^0-9])[ÄÅ][¡-¨¯¸¼-¾‚ƒ„†‡ˆ‰˜]",  # Å¡ Å¾ Ä‡: of Central Europe (5 Å² is an area)
    rf"[a-z](?:Ã|[ÂÄ](?: |$)|[ÂÄÅÎ-ÑØÙ]{_REST})",  # a capital in a word of small letters
    r"(?:^| )Ã ",  # à
    rf"[ÎÏÐÑØÙ]{_REST}[ÎÏÐÑØÙ]{_REST}|×{_REST}?×",  # Greek, Cyrillic, Hebrew
    rf"[ÙÚÛ]{_REST}?[ØÙ]|Ø{_REST}?Ù|Ø{_REST}Ø",  # Arabic
    rf"(?:[àáã-í]{_REST}{_REST}?){{2}}",  # the other scripts of Asia, Ethiopic
    r"â(?:[€¢¬†ˆ]|„¢|‚¬)|ï(?:»¿|¿½|¼[Œˆ‰])|ðŸ",  # quotation marks and dashes, ™ €, →, emoji
])  # fmt: skip
_IN_ALL_MOJIBAKE = "\ufffdÂÃÄÅÎÏÐÑ×ØÙÚÛàáâãäåæçèéêëìíïð"  # every match has one of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """The limits that a pair has to keep; both of its sides must.

    The defaults are the safe ones: they lose below 1 % of the pairs that people judged valid in
    ParaCrawl's samples of web text. A script's default is not to be checked.

    Attributes:
      min_characters: Fewest characters (code points) of a text.
      max_characters: Most characters of a text, at most 65,535. It keeps a line of megabytes from
        the tokenizer: 256 tokens of prose are below 1,000 characters.
      min_tokens: Fewest ids of a text, BOS and EOS not counted.
      max_tokens: Most ids of a text, BOS and EOS not counted.
      max_length_ratio: Most tokens of the longer text for each of the shorter one, beyond
        `LENGTH_SLACK` tokens that are free: longer <= ratio * shorter + slack. 0 switches it off.
        2 catches more, but a vocabulary that was trained on little of one language splits that
        into up to twice as many tokens.
      min_letters: Least share of letters and their marks among the characters that are not white
        space. 0 switches it off. "It's 9:15." has 0.33.
      reject_identical: Reject a pair whose texts are equal in every character. Letter case counts:
        "Berlin" and "BERLIN" pass.
      reject_mojibake: Reject texts whose bytes of UTF-8 were read as Windows-1252 or Latin-1
        ("GerÃ¤t", "donâ€™t"), or that hold U+FFFD. ASCII is always right.
      source_script: The script of the source language, as Unicode's long name ("Latin") or
        "Japanese" or "Korean", which use several; "" if it is not to be checked.
      target_script: The same of the target language.
      min_script: Least share of a text's letters that are in its script. Letters that no script
        has for itself count as if they were, and a text without letters passes. It is low since
        names in another script are often most of a short text.

    Raises:
      UserError: A limit is out of its range, or a script unknown.
    """

    min_characters: int = 1
    max_characters: int = 5000
    min_tokens: int = 1
    max_tokens: int = 256
    max_length_ratio: float = 3.0
    min_letters: float = 0.25
    reject_identical: bool = True
    reject_mojibake: bool = True
    source_script: str = ""
    target_script: str = ""
    min_script: float = 0.2

    def __post_init__(self) -> None:
        _require(
            1 <= self.min_characters <= self.max_characters <= _MOST_CHARACTERS,
            f"characters must keep 1 <= minimum <= maximum <= {_MOST_CHARACTERS}",
            f"minimum {self.min_characters}, maximum {self.max_characters}",
        )
        _require(
            1 <= self.min_tokens <= self.max_tokens,
            "tokens must keep 1 <= minimum <= maximum",
            f"minimum {self.min_tokens}, maximum {self.max_tokens}",
        )
        _require(
            self.max_length_ratio == 0 or 1 <= self.max_length_ratio < math.inf,
            "the greatest length ratio must be 1 or more, or 0 for no such limit",
            str(self.max_length_ratio),
        )
        _require(
            0 <= self.min_letters <= 1,
            "the least share of letters must be from 0 (no such limit) to 1",
            str(self.min_letters),
        )
        _require(
            0 <= self.min_script <= 1,
            "the least share of letters in the script must be from 0 to 1",
            str(self.min_script),
        )
        for script in (self.source_script, self.target_script):
            if script:
                check_script(script)

    @property
    def counts_characters(self) -> bool:
        """Whether any limit needs the characters of a text to be counted by their class."""
        return bool(
            self.min_letters or self.reject_mojibake or self.source_script or self.target_script
        )

    def for_validation(self) -> Filters:
        """Returns the limits of a validation corpus, of which the score is to be that of the whole.

        What is empty cannot be encoded, and what has more tokens is in no batch of training.
        """
        return Filters(
            max_characters=_MOST_CHARACTERS,
            max_tokens=self.max_tokens,
            max_length_ratio=0,
            min_letters=0,
            reject_identical=False,
            reject_mojibake=False,
        )


def _require(is_kept: bool, rule: str, received: str) -> None:
    if not is_kept:
        raise UserError(f"{rule}. Received: {received}")


def text_reasons(sources: list[str], targets: list[str], *, filters: Filters) -> dict[int, str]:
    """Says which pairs of normalised texts are rejected, and why.

    A pair that several limits reject has the first of these reasons: empty source, empty target,
    too few characters, too many characters, identical, too few letters, wrong script of the
    source, wrong script of the target, mojibake.

    Args:
      sources: The source texts, normalised.
      targets: As many target texts, normalised.
      filters: The limits.

    Returns:
      The reason codes of the rejected pairs by their position, from 0.

    >>> text_reasons(["dog", "", "cat"], ["Hund", "Hund", "cat"], filters=Filters())
    {1: 'empty_source', 2: 'identical'}
    """
    reasons: dict[int, str] = {}

    def reject(is_rejected: npt.NDArray[np.bool_], reason: str) -> None:
        for position in np.flatnonzero(is_rejected).tolist():
            reasons.setdefault(position, reason)

    pairs = len(sources)
    source_lengths = np.fromiter(map(len, sources), np.int64, pairs)
    target_lengths = np.fromiter(map(len, targets), np.int64, len(targets))
    shorter = np.minimum(source_lengths, target_lengths)
    longer = np.maximum(source_lengths, target_lengths)
    reject(source_lengths == 0, EMPTY_SOURCE)
    reject(target_lengths == 0, EMPTY_TARGET)
    reject(shorter < filters.min_characters, TOO_FEW_CHARACTERS)
    reject(longer > filters.max_characters, TOO_MANY_CHARACTERS)
    if filters.reject_identical:
        reject(np.fromiter(map(operator.eq, sources, targets), np.bool_, pairs), IDENTICAL)
    if not filters.counts_characters or len(reasons) == pairs:
        return reasons

    if reasons:  # above all, do not read a text of megabytes
        sources = ["" if i in reasons else text for i, text in enumerate(sources)]
        targets = ["" if i in reasons else text for i, text in enumerate(targets)]
    source = _count_characters(sources, script=filters.source_script)
    target = _count_characters(targets, script=filters.target_script)
    if filters.min_letters:
        reject(source.letter_share < filters.min_letters, TOO_FEW_LETTERS)
        reject(target.letter_share < filters.min_letters, TOO_FEW_LETTERS)
    if filters.source_script:
        reject(source.script_share < filters.min_script, WRONG_SCRIPT_SOURCE)
    if filters.target_script:
        reject(target.script_share < filters.min_script, WRONG_SCRIPT_TARGET)
    if filters.reject_mojibake:
        in_source = np.flatnonzero(source.suspects).tolist()
        in_target = np.flatnonzero(target.suspects).tolist()
        suspects = [sources[i] for i in in_source] + [targets[i] for i in in_target]
        positions = in_source + in_target
        for i in _find_mojibake(suspects):
            reasons.setdefault(positions[i], MOJIBAKE)
    return reasons


def token_reasons(
    source_tokens: npt.NDArray[np.int64], target_tokens: npt.NDArray[np.int64], *, filters: Filters
) -> dict[int, str]:
    """Says which pairs are rejected for their lengths in tokens, and why.

    A pair that several limits reject has the first of these reasons: too long, too short, length
    ratio.

    Args:
      source_tokens: [B], the number of ids of each source text, BOS and EOS not counted.
      target_tokens: [B], the same of the target texts.
      filters: The limits.

    Returns:
      The reason codes of the rejected pairs by their position, from 0.

    >>> token_reasons(np.array([3, 300, 9]), np.array([4, 9, 99]), filters=Filters())
    {1: 'too_long', 2: 'length_ratio'}
    """
    shorter = np.minimum(source_tokens, target_tokens)
    longer = np.maximum(source_tokens, target_tokens)
    is_long, is_short = longer > filters.max_tokens, shorter < filters.min_tokens
    is_rejected = is_long | is_short
    if filters.max_length_ratio:
        # Divided, not multiplied: a pair exactly at the limit then passes whatever the rounding.
        ratio = (longer - LENGTH_SLACK) / np.maximum(shorter, 1)
        is_rejected |= ratio > filters.max_length_ratio
    return {
        i: TOO_LONG if is_long[i] else TOO_SHORT if is_short[i] else LENGTH_RATIO
        for i in np.flatnonzero(is_rejected).tolist()
    }


@dataclasses.dataclass(frozen=True)
class _Counts:
    """How many characters of each of B texts are in each class; all of shape [B]."""

    visible: npt.NDArray[np.uint64]  # not white space
    letters: npt.NDArray[np.uint64]
    foreign: npt.NDArray[np.uint64]  # letters of other scripts than the expected one
    suspects: npt.NDArray[np.uint64]  # without one a text is no mojibake

    @property
    def letter_share(self) -> npt.NDArray[np.float64]:
        """The share of letters among the visible characters; 0 where there are none."""
        return self.letters / np.maximum(self.visible, 1)

    @property
    def script_share(self) -> npt.NDArray[np.float64]:
        """The share of letters that are not foreign; 1 where there are no letters."""
        return np.where(
            self.letters == 0, 1.0, (self.letters - self.foreign) / np.maximum(self.letters, 1)
        )


def _count_characters(texts: list[str], *, script: str) -> _Counts:
    """Counts the characters of texts, none of more than 65,535, by class.

    All code points of many texts are looked up at once in a table that packs the classes into
    the four 16-bit fields of a 64-bit number, whose sums over each text are the counters.
    """
    table = _class_table(script)
    sums = np.zeros(len(texts), np.uint64)
    for first in range(0, len(texts), _COUNTED_AT_ONCE):
        some = texts[first : first + _COUNTED_AT_ONCE]
        # A line end behind each: it is in no class, and no part to sum is empty, for which
        # reduceat would give a neighbour's value. Surrogates pass: they are no letters.
        joined = "\n".join([*some, ""]).encode("utf-32-le", "surrogatepass")
        points = np.frombuffer(joined, "<u4")
        lengths = np.fromiter(map(len, some), np.int64, len(some)) + 1
        starts = np.cumsum(lengths) - lengths
        sums[first : first + len(some)] = np.add.reduceat(table.take(points), starts)
    fields = [(sums >> np.uint64(_COUNTER_BITS * i)) & _COUNTER_MASK for i in range(4)]
    return _Counts(*fields)


@functools.cache
def _class_table(script: str) -> npt.NDArray[np.uint64]:
    """Returns the classes of every code point, packed in the order of the fields of `_Counts`."""
    visible = ~white_space()
    foreign = letters() & ~in_script(script) if script else np.zeros_like(visible)
    suspects = np.zeros_like(visible)
    suspects[[ord(character) for character in _IN_ALL_MOJIBAKE]] = True
    table = np.zeros(len(visible), np.uint64)
    for i, members in enumerate((visible, letters(), foreign, suspects)):
        table |= members.astype(np.uint64) << np.uint64(_COUNTER_BITS * i)
    return table


def _find_mojibake(texts: list[str]) -> list[int]:
    """Returns the positions of the texts that are mojibake."""
    if not texts:
        return []
    try:
        column = pa.array(texts, pa.large_string())
    except UnicodeEncodeError:  # half a surrogate pair: what stands for it matches no pattern
        column = pa.array([text.encode("utf-8", "replace") for text in texts], pa.large_string())
    matches = pc.match_substring_regex(column, _MOJIBAKE)
    positions: list[int] = np.flatnonzero(matches.to_numpy(zero_copy_only=False)).tolist()
    return positions
