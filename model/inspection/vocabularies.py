"""The tokens of a vocabulary."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

from model.inspection.blocks import Facts, Section
from model.text.normalization import WORD_BOUNDARY
from model.text.spans import PLACEHOLDERS
from model.text.vocabulary import SPECIAL_NAMES, Vocabulary, VocabularyPair

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SHOWN = 12  # longest tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySummary:
    """The tokens of a SentencePiece vocabulary."""

    side: str  # "source", "target" or "shared"
    file: str  # name in its folder
    type: str  # "unigram", "bpe" or "char", by the scores of its tokens
    size: int  # rows of the embedding
    tokens: int  # tokens with a text; the others only fill the vocabulary up
    kinds: dict[str, int]  # tokens by kind: special, placeholders, bytes, learnt, given
    word_starts: int  # learnt tokens that begin a word
    longest: list[str]  # learnt tokens
    given: list[str]  # tokens that the user gave, except placeholders
    normalization: dict[str, object]


def summarize_vocabularies(pair: VocabularyPair) -> list[VocabularySummary]:
    """Summarize the vocabularies of both sides, or the shared one."""
    sides = {"shared": pair.source} if pair.is_shared else vars(pair)
    files = pair.files[1:]
    return [_summarize(*each, file) for each, file in zip(sides.items(), files, strict=True)]


def vocabulary_sections(vocabularies: Sequence[VocabularySummary]) -> list[Section]:
    """Return a section on vocabularies, or none if there are none."""
    blocks = []
    for each in vocabularies:
        empty = each.size - each.tokens
        filling = f", {empty:,} of them empty, to fill it up" if empty else ""
        facts = [
            (each.side, f"{each.size:,} tokens ({each.type}){filling}, {each.file}"),
            ("kinds", ", ".join(f"{count:,} {kind}" for kind, count in each.kinds.items())),
            ("begin a word", each.word_starts),
            ("longest", " ".join(each.longest)),
            ("given", " ".join(each.given)),
            ("normalization", ", ".join(f"{k} {v}" for k, v in each.normalization.items())),
        ]
        blocks.append(Facts(facts))
    return [Section("vocabulary", "Vocabulary", blocks)] if blocks else []


def _summarize(side: str, vocabulary: Vocabulary, file: str) -> VocabularySummary:
    learnt = vocabulary.learnt_pieces()
    by_kind: dict[str, list[str]] = collections.defaultdict(list)
    for i in range(vocabulary.piece_count):
        piece = vocabulary.piece(i)
        if i in SPECIAL_NAMES:
            kind = "special"
        elif piece in PLACEHOLDERS:
            kind = "placeholders"
        elif piece in learnt:
            kind = "learnt"
        else:
            kind = "bytes" if _BYTE.fullmatch(piece) else "given"
        by_kind[kind].append(piece)
    order = sorted(learnt, key=lambda piece: (-len(piece.replace(WORD_BOUNDARY, "")), piece))
    return VocabularySummary(
        side=side,
        file=file,
        type=_type(learnt),
        size=vocabulary.size,
        tokens=vocabulary.piece_count,
        kinds={kind: len(pieces) for kind, pieces in by_kind.items()},
        word_starts=sum(piece.startswith(WORD_BOUNDARY) for piece in learnt),
        longest=order[:_SHOWN],
        given=by_kind.get("given", []),
        normalization=dict(vocabulary.normalization.as_json()),
    )


def _type(learnt: dict[str, tuple[int, float]]) -> str:
    if all(len(piece) == 1 for piece in learnt):
        return "char"
    # SentencePiece stores negated ranks for BPE, and log-probabilities for a unigram model.
    is_rank = all(score == int(score) for _, score in learnt.values())
    return "bpe" if is_rank else "unigram"
