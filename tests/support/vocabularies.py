"""Vocabularies of small corpora."""

from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import SHARED_MODEL
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
