"""The batches of a dataset's splits, as a training reads them."""

from __future__ import annotations

from pathlib import Path

from model.dataset.manifest import TRAIN, DatasetManifest
from model.dataset.subword_dropout import SubwordDropout
from model.dataset.windows import TokenBatches
from model.text.vocabulary import VocabularyPair
from model.transformer.config import TrainingConfig


def split_batches(
    dataset: Path,
    split: str,
    *,
    manifest: DatasetManifest,
    vocabularies: VocabularyPair,
    training: TrainingConfig,
    replicas: int,
) -> TokenBatches:
    """Returns the batches of a split: of training shuffled and with subword dropout.

    Args:
      dataset: The dataset folder.
      split: Its name.
      manifest: Of the dataset.
      vocabularies: Of the dataset.
      training: How the model is trained.
      replicas: That train together.
    """
    rate = training.subword_dropout
    dropout = None
    if rate and split == TRAIN:
        source = SubwordDropout(vocabularies.source, rate)
        is_shared = vocabularies.is_shared
        dropout = (source, source if is_shared else SubwordDropout(vocabularies.target, rate))
    return TokenBatches(
        files=[dataset / name for name in manifest.splits[split].shards],
        max_tokens=training.batch_tokens,
        seed=training.seed,
        vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
        replicas=replicas,
        shuffle=split == TRAIN,
        records=manifest.splits[split].records,
        subword_dropout=dropout,
    )
