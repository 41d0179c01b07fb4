"""Vocabularies of small corpora."""

from pipelines.preprocess.vocabulary_sample import (
    VocabularySpec,
    distinct_lines,
    train_vocabulary,
)


def train(lines, **options):
    values = {"name": "shared", "size": 60, "kind": "unigram", "normalization_rule": "nmt_nfkc"}
    return train_vocabulary(distinct_lines(lines), VocabularySpec(**(values | options)))
