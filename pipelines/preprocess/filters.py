"""The filters that reject pairs, each with its reason code.

Filters do not change texts; `tt.model.text.normalization` does. Whether a filter rejects a pair
depends only on the pair.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from typing import TYPE_CHECKING

from tt.model.errors import checked, require

if TYPE_CHECKING:  # Functions import NumPy themselves, because the help does not need it.
    import numpy as np
    import numpy.typing as npt

MOST_CHARACTERS = 65_535  # per text, because characters are counted in 16 bits
DEDUPLICATE = ("pair", "source", "target", "none")  # the part in which duplicates are equal
LONG_SIDE = "long-side"
SIDE = "side"
HELD_OUT_BY = (LONG_SIDE, "pair", "source", SIDE)  # the rules for held-out pairs

EMPTY_SOURCE = "empty_source"
EMPTY_TARGET = "empty_target"
TOO_FEW_CHARACTERS = "too_few_characters"
TOO_MANY_CHARACTERS = "too_many_characters"
IDENTICAL = "identical"  # both sides are equal
TOO_FEW_LETTERS = "too_few_letters"
WRONG_SCRIPT_SOURCE = "wrong_script_source"
WRONG_SCRIPT_TARGET = "wrong_script_target"
MOJIBAKE = "mojibake"  # UTF-8 was decoded in another encoding
STRAY_PLACEHOLDER = "stray_placeholder"  # the corpus itself contains a placeholder token
TOO_SHORT = "too_short"  # in tokens
TOO_LONG = "too_long"  # in tokens
LENGTH_RATIO = "length_ratio"
WRONG_LANGUAGE_SOURCE = "wrong_language_source"
WRONG_LANGUAGE_TARGET = "wrong_language_target"
NOT_ALIGNED = "not_aligned"  # the sides are about different things
NOT_SAMPLED = "not_sampled"  # the pair is not in the sample of a corpus with a weight
LENGTH_SLACK = 8  # tokens; without it, short texts, idioms and names would exceed any ratio


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """The limits that both sides of a pair must satisfy.

    The defaults are safe: they reject less than 1 % of the pairs that people judged valid in
    ParaCrawl's samples of web text. By default, scripts are not checked.

    Attributes:
      min_characters: Reject pairs with fewer than N characters on a side.
      max_characters: Reject pairs with more than N characters on a side; N is at most 65,535.

        This limit keeps lines of megabytes from the tokenizer. 256 tokens of prose are less than
        1,000 characters.
      min_tokens: Reject pairs with fewer than N tokens on a side, not counting BOS and EOS.
      max_tokens: Reject pairs with more than N tokens on a side, not counting BOS and EOS.
      max_length_ratio: Reject pairs whose sides have a ratio of tokens above this; 0 allows all.

        The longer side gets 8 tokens for free. A ratio of 2 rejects more bad pairs, but also good
        ones: a vocabulary that was trained on little text of a language splits that language into
        up to twice as many tokens.
      min_letters: Reject pairs if less than this share of a side is letters; 0 allows all.

        Combining marks count as letters, and white space does not count. "It's 9:15." has 0.33.
      reject_identical: Reject pairs whose sides are equal.

        Letter case counts: "Berlin" and "BERLIN" differ.
      reject_mojibake: Reject pairs with text that was decoded with the wrong encoding.

        This means UTF-8 that was decoded as Windows-1252 or Latin-1 ("GerÃ¤t", "donâ€™t"), and
        texts that contain U+FFFD. ASCII texts always pass.
      source_script: Script of source texts, by its long Unicode name; "" allows any.

        "Japanese" and "Korean" stand for the several scripts of these languages.
      target_script: Script of target texts, by its long Unicode name; "" allows any.
      min_script: Reject pairs if less than this share of a side's letters is in its script.

        Letters that several scripts use count as letters of the script, and texts without letters
        pass. The default is low because names in another script can be most of a short text.

    Raises:
      UserError: A limit is out of its range, or a script is unknown.
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
            f"the limits must satisfy 1 <= `min_characters` <= `max_characters` <= "
            f"{MOST_CHARACTERS}",
            f"{self.min_characters} and {self.max_characters}",
        )
        require(
            1 <= self.min_tokens <= self.max_tokens,
            "the limits must satisfy 1 <= `min_tokens` <= `max_tokens`",
            f"{self.min_tokens} and {self.max_tokens}",
        )
        require(
            self.max_length_ratio == 0 or 1 <= self.max_length_ratio < math.inf,
            "`max_length_ratio` must be at least 1, or 0 to allow any ratio",
            self.max_length_ratio,
        )
        require(0 <= self.min_letters <= 1, "`min_letters` must be 0 to 1", self.min_letters)
        require(0 <= self.min_script <= 1, "`min_script` must be 0 to 1", self.min_script)
        for script in (self.source_script, self.target_script):
            if script:
                from tt.pipelines.preprocess.characters import check_script

                check_script(script)

    def for_validation(self) -> Filters:
        """Return the filters of a held-out corpus, which keep as many pairs as possible.

        The score of the model should cover the complete corpus. Empty texts are still rejected
        because they cannot be encoded, and long texts because they exceed the training batches.
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
    """Return the reason codes of the pairs that the text filters reject, by position from 0.

    If several filters reject a pair, the first of these reasons counts: empty source, empty target,
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

    if reasons:  # Blank the rejected pairs, because some have megabytes of text.
        sources, targets = sources.copy(), targets.copy()
        for i in reasons:
            sources[i] = targets[i] = ""
    source = count_characters(sources, script=filters.source_script)
    target = count_characters(targets, script=filters.target_script)
    reject(source.letter_share < filters.min_letters, TOO_FEW_LETTERS)
    reject(target.letter_share < filters.min_letters, TOO_FEW_LETTERS)
    # Without a script, the share of its letters is 1, which no limit exceeds.
    reject(source.script_share < filters.min_script, WRONG_SCRIPT_SOURCE)
    reject(target.script_share < filters.min_script, WRONG_SCRIPT_TARGET)
    if filters.reject_mojibake:
        for texts, counts in ((sources, source), (targets, target)):
            is_mojibake = counts.suspects > 0
            is_mojibake[is_mojibake] = find_mojibake([*itertools.compress(texts, is_mojibake)])
            reject(is_mojibake, MOJIBAKE)
    return reasons


def token_reasons(
    source_tokens: npt.NDArray[np.int64], target_tokens: npt.NDArray[np.int64], *, filters: Filters
) -> dict[int, str]:
    """Return the reason codes of the pairs that the token filters reject, by position from 0.

    The numbers of tokens are of shape [B] and do not count BOS and EOS. If several filters reject a
    pair, the first of these reasons counts: too long, too short, length ratio.

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
        # With a multiplication, rounding would reject some pairs exactly at the limit.
        ratio = (longer - LENGTH_SLACK) / np.maximum(shorter, 1)
        is_rejected |= ratio > filters.max_length_ratio
    return {
        i: TOO_LONG if is_long[i] else TOO_SHORT if is_short[i] else LENGTH_RATIO
        for i in np.flatnonzero(is_rejected).tolist()
    }
