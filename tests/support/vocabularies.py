"""Vocabularies of small corpora."""

from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    SHARED_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
    vocabulary_json,
)
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.vocabularies import distinct_lines, train_vocabulary


def train(lines, *, size=60, kind="unigram", rule="nmt_nfkc", keep_whitespace=False, **options):
    """Train a vocabulary of `size` tokens, or of as many as possible if `size` is None."""
    chosen = PreprocessOptions(
        output="", vocabulary_size=size, vocabulary_type=kind, sentencepiece_rule=rule,
        normalization=TextNormalization(clean_whitespace=not keep_whitespace), protect=False,
        **options,
    )  # fmt: skip
    return train_vocabulary(distinct_lines(lines), chosen, file=SHARED_MODEL)


TEXTS = [
    "a young man in a blue shirt is standing on a ladder cleaning a window",
    "two men are at the stove preparing food",
    "a man in green holds a guitar while the other man observes his shirt",
    "a girl in a pink dress is climbing up a set of stairs",
]


def make_vocabulary(folder, *, kind="bpe", symbols=()):
    """Train a vocabulary of 48 tokens on `TEXTS`, and return it."""
    model = train(TEXTS, size=48, kind=kind, user_symbols=symbols)
    (folder / SHARED_MODEL).write_bytes(model)
    info = vocabulary_json(shared=True, normalization=TextNormalization())
    (folder / VOCABULARY_FILE).write_text(info)
    return load_vocabularies(folder).source
