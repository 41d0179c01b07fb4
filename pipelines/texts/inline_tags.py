"""Place the inline tags of a sentence around the same words of its translation.

The model translates a sentence without its tags. `aligning` finds the words that belong together,
and this module places the tags accordingly. S is the number of source words, and T is the number of
target words.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from tt.pipelines.texts.markup.regions import Role, find_partners

Links = npt.NDArray[np.float64]  # [T, S]; each row sums to at most 1, see `find_links`

# A word is a number, a run of letters, a single letter of a script without spaces, a placeholder,
# or a single mark.
_WORD = regex.compile(
    r"⟦\d+⟧|[\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|[\p{L}\p{N}\p{M}_--[\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+"
    r"(?:['’\u2010-](?=\p{L})[\p{L}\p{N}\p{M}_]+)*|\S",
    regex.V1,
)
# The same for texts without other scripts, marks and numerals; three times as fast.
_FAST_WORD = re.compile(r"⟦\d+⟧|\w+(?:['’\u2010-](?=[^\W\d_])\w+)*|\S")
_NOT_FAST = re.compile(
    "[\x1c-\x1f²³¹¼-¾\u0300-\u036f\u0483-\u0489\u0530-\u1fff\u2070-⟥⟨-\U0010ffff]"
)
_ENDS = frozenset(".!?。！？")


class Tag(NamedTuple):
    """A tag that was removed from a sentence.

    Attributes:
      place: Where the tag was, as an index in the sentence without tags.
      text: The tag.
      role: The role of the tag.
      spaces: Whether there is white space before and after the tag in the source.
    """

    place: int
    text: str
    role: Role
    spaces: tuple[bool, bool] = (False, False)


@dataclasses.dataclass
class _Node:
    """A pair of tags with everything in it, or a single tag; words count from 0.

    Attributes:
      tags: The opening and the closing tag; one of them may be missing.
      first: The first source word after the opening tag.
      last: The source word after the last one in the pair; equal to `first` for single tags.
      children: The tags in the pair.
      start: The first target word in the pair, or the target word after a single tag.
      stop: The target word after the last one in the pair.
    """

    tags: tuple[Tag | None, Tag | None]
    first: int
    last: int
    children: list[_Node] = dataclasses.field(default_factory=list)
    start: int = 0
    stop: int = 0

    @property
    def is_pair(self) -> bool:
        return self.last > self.first


def find_words(text: str, *, atoms: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Return the start and the end of each word and each mark of a text.

    Args:
      text: The text.
      atoms: Parts of the text that count as one word.

    >>> find_words("A dog, {x}.", atoms=["{x}"])
    [(0, 1), (2, 5), (5, 6), (7, 10), (10, 11)]
    """
    if not any(atoms):
        pattern = _WORD if _NOT_FAST.search(text) else _FAST_WORD
        return [found.span() for found in pattern.finditer(text)]
    longest_first = sorted({each for each in atoms if each}, key=len, reverse=True)
    alternatives = "|".join(map(regex.escape, longest_first))
    pattern = regex.compile(f"{alternatives}|{_WORD.pattern}", regex.V1)
    return [found.span() for found in pattern.finditer(text)]


def place_tags(
    tags: Sequence[Tag],
    *,
    source: str,
    target: str,
    atoms: Sequence[str] = (),
    links: Links | None = None,
    written: Sequence[str] | None = None,
) -> tuple[str, bool]:
    """Return a translation with the tags of its source, and whether all places are clear.

    The result is as well-formed as the source. A pair contains at least one word, unless it is
    empty in the source, or the translation is empty.

    Args:
      tags: The tags in the order of the source.
      source: The source without tags.
      target: The translation.
      atoms: Parts of both texts that count as one word each; see `find_words`.
      links: The share of each source word in each target word, [T, S]. The places of tags inside a
        sentence are not clear without links that fit the words.
      written: The texts that replace the tags in the result, such as single characters.

    >>> tags = [Tag(4, "<b>", Role.OPEN), Tag(7, "</b>", Role.CLOSE)]
    >>> source, target = "the red car", "el coche rojo"
    >>> links = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    >>> place_tags(tags, source=source, target=target, links=links)
    ('el coche <b>rojo</b>', True)
    """
    source_words, target_words = (find_words(text, atoms=atoms) for text in (source, target))
    if links is None or len(links) != len(target_words):
        links = np.zeros((len(target_words), len(source_words)))
    top = _build_tree(tags, source_words, written=written)
    top.start, top.stop = 0, len(target_words)
    sides = _Sides(
        links,
        [source[start:end] for start, end in source_words],
        [target[start:end] for start, end in target_words],
    )
    is_clear = _place_all(top, sides)
    return _Writer(target, target_words).write(top), is_clear


def needs_links(tags: Sequence[Tag], source: str) -> bool:
    """Return whether links are necessary to place the tags.

    Tags at both ends of a sentence stay there, so they need no links.
    """
    first, last = len(source) - len(source.lstrip()), len(source.rstrip())
    return any(first < tag.place < last for tag in tags)


def _build_tree(
    tags: Sequence[Tag],
    words: Sequence[tuple[int, int]],
    *,
    written: Sequence[str] | None = None,
) -> _Node:
    """Return a node with the pairs and single tags of a sentence as its children."""
    top = _Node((None, None), 0, len(words))
    stack: list[_Node] = []  # the pairs that are open

    def add(node: _Node) -> None:
        (stack[-1] if stack else top).children.append(node)

    # Find the pairs first, because an opening tag without its closing tag is a single tag.
    partners = find_partners([(tag.role, tag.text) for tag in tags])
    starts, ends = ([word[side] for word in words] for side in (0, 1))
    if written is not None:
        tags = [tag._replace(text=text) for tag, text in zip(tags, written, strict=True)]
    for i, tag in enumerate(tags):
        after = bisect.bisect_right(ends, tag.place)  # the first word that ends after the tag
        if i not in partners:
            add(_Node((tag, None), after, after))
        elif tag.role is Role.OPEN:
            stack.append(_Node((tag, tags[partners[i]]), after, after))
        else:
            node = stack.pop()
            node.last = max(node.first, bisect.bisect_left(starts, tag.place))
            add(node)
    return top


class _Sides(NamedTuple):
    """The words of both sides."""

    links: Links  # [T, S]
    source: list[str]  # S words
    target: list[str]  # T words


def _has_letters(word: str) -> bool:
    return any(map(str.isalnum, word))


def _place_all(top: _Node, sides: _Sides) -> bool:
    """Place all tags between the target words, and return whether all places are clear."""
    is_clear = True
    nodes = [top]
    while nodes:
        parent = nodes.pop()
        placed: list[_Node] = []
        moved: set[int] = set()
        host: _Node | None = None  # the pair that contains the next pair without a free word
        for node in [each for each in parent.children if each.is_pair]:
            window = None if host else _find_window(node, parent, placed, sides)
            if window is None:
                moved.add(id(node))
                host = host or max(placed, key=lambda each: each.stop - each.start)
                host.children.append(node)
                host = node
                continue
            node.start, node.stop, has_gain = window
            is_clear &= has_gain
            placed.append(node)
        parent.children = [each for each in parent.children if id(each) not in moved]
        before = parent.start
        for node in [each for each in parent.children if not each.is_pair]:
            before = node.start = node.stop = _find_gap(
                node, parent, placed, sides.links, at_least=before
            )
        nodes += placed
    return is_clear


def _find_window(
    node: _Node, parent: _Node, placed: Sequence[_Node], sides: _Sides
) -> tuple[int, int, bool] | None:
    """Return the adjacent free target words that belong to a pair most clearly.

    Returns:
      The first word, the word after the last one, and whether these words clearly belong to the
      pair; or None if no word is free. There is at least one word, unless the translation is empty.
    """
    if (parent.start, parent.stop) == (0, 0):
        return 0, 0, True
    if (node.first, node.last) == (parent.first, parent.last) and not placed:
        return parent.start, parent.stop, True
    inside = sides.links[:, node.first : node.last].sum(1)  # [T]
    # Positive if most of a word belongs to the pair.
    worth = (2 * inside - sides.links.sum(1)).tolist()
    taken = [True] * len(worth)
    for each, is_taken in [(parent, False), *((other, True) for other in placed)]:
        taken[each.start : each.stop] = [is_taken] * (each.stop - each.start)
    if all(taken):
        return None
    best, start, total = (0, 0, 0.0), parent.start, 0.0
    for j in range(parent.start, parent.stop):
        if taken[j] or total <= 0:
            start, total = j + taken[j], 0.0
        if not taken[j]:
            total += worth[j]
            if total > best[2]:
                best = (start, j + 1, total)
    start, stop, gain = best
    if gain <= 0:  # choose the word that depends on the pair most
        free = [j for j in range(parent.start, parent.stop) if not taken[j]]
        start = max(free, key=lambda j: (_has_letters(sides.target[j]), inside[j]))
        return start, start + 1, False
    # Punctuation at an end of the pair is inside if it is inside in the source.
    target = sides.target
    first, last = sides.source[node.first], sides.source[node.last - 1]
    while _has_letters(last) and stop - start > 1 and not _has_letters(target[stop - 1]):
        stop -= 1
    while _has_letters(first) and stop - start > 1 and not _has_letters(target[start]):
        start += 1
    has_mark = not _has_letters(target[stop - 1])
    is_free = stop < parent.stop and not taken[stop]
    if is_free and not has_mark and _are_same_mark(last, target[stop]):
        stop += 1
    return start, stop, True


def _are_same_mark(one: str, other: str) -> bool:
    """Return whether two words are the same mark, or both end a sentence."""
    return not _has_letters(one) and (one == other or {one, other} <= _ENDS)


def _find_gap(
    node: _Node, parent: _Node, placed: Sequence[_Node], links: Links, *, at_least: int
) -> int:
    """Return the target word before which a single tag belongs, outside of the pairs."""
    before = links[:, : node.first].sum(1)
    after = links[:, node.first :].sum(1)
    gaps = [
        gap
        for gap in range(at_least, parent.stop + 1)
        if not any(each.start < gap < each.stop for each in placed)
    ]
    if node.first <= parent.first:
        return gaps[0]
    if node.first >= parent.last:
        return gaps[-1]
    # The links that cross each gap, less those that cross the first gap.
    costs = np.cumsum([0.0, *(after - before)[parent.start : parent.stop]])
    return min(gaps, key=lambda gap: float(costs[gap - parent.start]))


class _Writer:
    """Writes a translation with its tags, from the start to the end.

    Args:
      target: The translation.
      words: Its words.
    """

    def __init__(self, target: str, words: Sequence[tuple[int, int]]) -> None:
        self._target = target
        self._words = words
        self._end = 0  # the characters before this index have been written
        self._written: list[str] = []

    def write(self, top: _Node) -> str:
        """Return the translation with the tags in a tree."""
        stack: list[tuple[Iterator[_Node], _Node | None, Tag | None]]
        stack = [(iter(_in_order(top)), None, None)]
        while stack:
            children, node, closing = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                if node and closing:
                    if node.stop > node.start:
                        self._copy(self._words[node.stop - 1][1])
                    self._written.append(closing.text)
                continue
            opening, closing = child.tags
            if child.is_pair and opening:
                if child.stop > child.start:  # an empty translation has no words
                    self._copy(self._words[child.start][0])
                self._written.append(opening.text)
                stack.append((iter(_in_order(child)), child, closing))
            elif opening and closing:  # the pair is empty in the source
                spaces = (opening.spaces[0], closing.spaces[1])
                text = "".join(_texts(child))
                self._write_single(Tag(0, text, Role.VOID, spaces), gap=child.start)
            elif opening:
                self._write_single(opening, gap=child.start)
        self._copy(len(self._target))
        return "".join(self._written)

    def _copy(self, end: int) -> None:
        self._written.append(self._target[self._end : end])
        self._end = max(self._end, end)

    def _write_single(self, tag: Tag, *, gap: int) -> None:
        words = self._words
        before = max(words[gap - 1][1] if gap > 0 else 0, self._end)
        after = max(words[gap][0] if gap < len(words) else len(self._target), before)
        if tag.role is Role.CLOSE:
            self._copy(before)
            self._written.append(tag.text)
        elif tag.role is Role.OPEN:
            self._copy(after)
            self._written.append(tag.text)
        else:  # the spaces around the tag follow the source
            self._copy(before)
            space = self._target[before:after]
            spaces = [space if has_space else "" for has_space in tag.spaces]
            self._written += [spaces[0], tag.text, spaces[1]]
            self._end = after


def _in_order(node: _Node) -> list[_Node]:
    """Return the children; single tags precede pairs that start at the same word."""
    return sorted(node.children, key=lambda each: (each.start, each.stop))


def _texts(node: _Node) -> list[str]:
    """Return the tags of a pair without words, and of everything in it, in order."""
    texts: list[str] = []
    stack: list[_Node | Tag | None] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, _Node):
            opening, closing = item.tags
            stack += [closing, *reversed(item.children), opening]
        elif item:
            texts.append(item.text)
    return texts
