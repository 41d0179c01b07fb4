"""The filters: which pairs are left out of the records, each with its reason code.

A filter never changes a text; `tt.model.text.normalization.TextNormalization` does. A pair is
judged by itself: what it is batched with changes nothing.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import TYPE_CHECKING

from tt.model.errors import require

if TYPE_CHECKING:  # arrays are imported where they are needed: limits and their help need none
    import numpy as np
    import numpy.typing as npt

MOST_CHARACTERS = 65_535  # of a side: counts of characters have 16 bits
DEDUPLICATE = ("pair", "source", "target", "none")  # parts of a pair that duplicates share
LONG_SIDE = "long-side"
SIDE = "side"
HELD_OUT_BY = (LONG_SIDE, "pair", "source", SIDE)  # rules that tell held-out pairs

EMPTY_SOURCE = "empty_source"
EMPTY_TARGET = "empty_target"
TOO_FEW_CHARACTERS = "too_few_characters"
TOO_MANY_CHARACTERS = "too_many_characters"
IDENTICAL = "identical"  # one side is a copy of the other
TOO_FEW_LETTERS = "too_few_letters"
WRONG_SCRIPT_SOURCE = "wrong_script_source"
WRONG_SCRIPT_TARGET = "wrong_script_target"
MOJIBAKE = "mojibake"  # bytes of UTF-8 were read as another encoding
STRAY_PLACEHOLDER = "stray_placeholder"  # the text of a placeholder where none was put
TOO_SHORT = "too_short"  # in tokens
TOO_LONG = "too_long"  # in tokens
LENGTH_RATIO = "length_ratio"
NOT_SAMPLED = "not_sampled"  # its corpus has a weight
LENGTH_SLACK = 8  # tokens: short texts, idioms and names differ more than any ratio allows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """The limits that a pair has to keep; both of its sides must.

    The defaults are the safe ones: they lose below 1 % of the pairs that people judged valid in
    ParaCrawl's samples of web text. A script's default is not to be checked.

    Attributes:
      min_characters: Reject pairs with a side of fewer characters.
      max_characters: Reject pairs with a side of more characters, at most 65,535.

        It keeps a line of megabytes from the tokenizer: 256 tokens of prose are below 1,000
        characters.
      min_tokens: Reject pairs with a side of fewer tokens, BOS and EOS not counted.
      max_tokens: Reject pairs with a side of more tokens, BOS and EOS not counted.
      max_length_ratio: Reject pairs whose longer side has more than this number of tokens for each
        token of the shorter one, beyond 8 that are free; 0 allows any.

        2 catches more, but a vocabulary that was trained on little of one language splits that
        into up to twice as many tokens.
      min_letters: Reject pairs with a side of a smaller share of letters among its characters; 0
        allows any.

        Marks of letters count as letters, and white space does not count. "It's 9:15." has 0.33.
      reject_identical: Reject pairs whose sides are equal, or keep them.

        Letter case counts: "Berlin" and "BERLIN" differ.
      reject_mojibake: Reject texts that were decoded in a wrong encoding, or keep them.

        These are texts whose bytes of UTF-8 were read as Windows-1252 or Latin-1 ("GerÃ¤t",
        "donâ€™t"), or that hold U+FFFD. ASCII is always right.
      source_script: Script that source texts must be in, as Unicode's long name ("Latin"), or
        "Japanese" or "Korean", which use several; "" is any.
      target_script: Script that target texts must be in, likewise.
      min_script: Reject pairs with a side of a smaller share of letters in its script.

        Letters that no script has for itself count as if they were, and a text without letters
        passes. It is low since names in another script are often most of a short text.

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
        require(
            1 <= self.min_characters <= self.max_characters <= MOST_CHARACTERS,
            f"characters must keep 1 <= `min_characters` <= `max_characters` <= {MOST_CHARACTERS}",
            f"{self.min_characters} and {self.max_characters}",
        )
        require(
            1 <= self.min_tokens <= self.max_tokens,
            "tokens must keep 1 <= `min_tokens` <= `max_tokens`",
            f"{self.min_tokens} and {self.max_tokens}",
        )
        require(
            self.max_length_ratio == 0 or 1 <= self.max_length_ratio < math.inf,
            "`max_length_ratio` must be at least 1, or 0 for any ratio",
            self.max_length_ratio,
        )
        require(0 <= self.min_letters <= 1, "`min_letters` must be 0 to 1", self.min_letters)
        require(0 <= self.min_script <= 1, "`min_script` must be 0 to 1", self.min_script)
        for script in (self.source_script, self.target_script):
            if script:
                from tt.pipelines.preprocess.characters import check_script

                check_script(script)

    def for_validation(self) -> Filters:
        """Returns the limits of a validation corpus, of which the score is to be that of the whole.

        What is empty cannot be encoded, and what has more tokens is in no batch of training.
        """
        return Filters(
            max_characters=MOST_CHARACTERS,
            max_tokens=self.max_tokens,
            max_length_ratio=0,
            min_letters=0,
            reject_identical=False,
            reject_mojibake=False,
        )


def text_reasons(sources: list[str], targets: list[str], *, filters: Filters) -> dict[int, str]:
    """Returns the reason codes of rejected pairs of normalised texts by their position, from 0.

    A pair that several limits reject has the first of these reasons: empty source, empty target,
    too few characters, too many characters, identical, too few letters, wrong script of the
    source, wrong script of the target, mojibake.

    >>> text_reasons(["dog", "", "cat"], ["Hund", "Hund", "cat"], filters=Filters())
    {1: 'empty_source', 2: 'identical'}
    """
    import numpy as np

    from tt.pipelines.preprocess.characters import count_characters, find_mojibake

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
    scripts = filters.source_script or filters.target_script
    if not (filters.min_letters or filters.reject_mojibake or scripts) or len(reasons) == pairs:
        return reasons

    if reasons:  # above all, do not read a text of megabytes
        sources, targets = sources.copy(), targets.copy()
        for i in reasons:
            sources[i] = targets[i] = ""
    source = count_characters(sources, script=filters.source_script)
    target = count_characters(targets, script=filters.target_script)
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
        for i in find_mojibake(suspects):
            reasons.setdefault(positions[i], MOJIBAKE)
    return reasons


def token_reasons(
    source_tokens: npt.NDArray[np.int64], target_tokens: npt.NDArray[np.int64], *, filters: Filters
) -> dict[int, str]:
    """Returns the reason codes of pairs rejected for their lengths in tokens, by position from 0.

    The lengths are of shape [B], BOS and EOS not counted. A pair that several limits reject has
    the first of these reasons: too long, too short, length ratio.

    >>> import numpy as np
    >>> token_reasons(np.array([3, 300, 9]), np.array([4, 9, 99]), filters=Filters())
    {1: 'too_long', 2: 'length_ratio'}
    """
    import numpy as np

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
