"""What tokens a vocabulary has."""

from __future__ import annotations

import collections
import dataclasses
import re

from model.summaries.histograms import Histogram
from model.text.normalization import WORD_BOUNDARY
from model.text.spans import PLACEHOLDERS
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair

SPECIAL_NAMES = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<bos>", EOS_ID: "<eos>"}
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SHOWN = 12  # longest tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySummary:
    """The tokens of a SentencePiece vocabulary."""

    side: str  # "source", "target" or "shared"
    file: str  # name in its folder
    type: str  # "unigram", "bpe" or "char", by the scores of its tokens
    size: int  # rows of the embedding
    tokens: int  # with a text of their own: the others fill the size up
    kinds: dict[str, int]  # tokens that are special, placeholders, bytes, learnt, or given
    word_starts: int  # learnt tokens that begin a word
    lengths: Histogram  # characters of the learnt tokens, the mark of a word's start not counted
    longest: list[str]  # learnt tokens
    given: list[str]  # tokens that the user gave, placeholders not among them
    normalization: dict[str, object]


def summarize_vocabularies(pair: VocabularyPair) -> list[VocabularySummary]:
    """Returns what the vocabularies have: one where both sides share it."""
    sides = {"shared": pair.source} if pair.is_shared else vars(pair)
    files = pair.files[1:]
    return [_summarize(*each, file) for each, file in zip(sides.items(), files, strict=True)]


def token_names(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """Names ids by their texts: U+2581 begins a word, and what has no text stands in <>."""
    return [
        SPECIAL_NAMES.get(i) or (vocabulary.piece(i) if i < vocabulary.piece_count else f"<id {i}>")
        for i in ids
    ]


def _summarize(side: str, vocabulary: Vocabulary, file: str) -> VocabularySummary:
    learnt = vocabulary.learnt_pieces()
    lengths = {piece: len(piece.replace(WORD_BOUNDARY, "")) for piece in learnt}
    kinds: collections.Counter[str] = collections.Counter()
    given = []
    for i in range(vocabulary.piece_count):
        piece = vocabulary.piece(i)
        if i in SPECIAL_NAMES:
            kinds["special"] += 1
        elif piece in PLACEHOLDERS:
            kinds["placeholders"] += 1
        elif piece in learnt:
            kinds["learnt"] += 1
        elif _BYTE.fullmatch(piece):
            kinds["bytes"] += 1
        else:
            kinds["given"] += 1
            given.append(piece)
    most = max(lengths.values(), default=0)
    return VocabularySummary(
        side=side,
        file=file,
        type=_type(learnt),
        size=vocabulary.size,
        tokens=vocabulary.piece_count,
        kinds=dict(kinds),
        word_starts=sum(piece.startswith(WORD_BOUNDARY) for piece in learnt),
        lengths=Histogram.of(list(lengths.values()), edges=range(most + 2), unit="characters"),
        longest=sorted(learnt, key=lambda piece: (-lengths[piece], piece))[:_SHOWN],
        given=given,
        normalization=dict(vocabulary.normalization.as_json()),
    )


def _type(learnt: dict[str, tuple[int, float]]) -> str:
    if all(len(piece) == 1 for piece in learnt):
        return "char"
    # Of BPE, SentencePiece stores negated ranks, of a unigram model log-probabilities.
    is_rank = all(score == int(score) for _, score in learnt.values())
    return "bpe" if is_rank else "unigram"
