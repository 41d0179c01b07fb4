"""The dataset of a training, and the batches of its splits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tt.model.dataset.batches import WINDOW, TokenBatches
from tt.model.dataset.changes import Augmentation, SubwordDropout
from tt.model.dataset.manifest import TRAIN, VALIDATION, DatasetManifest
from tt.model.dataset.tfrecords import check_shards
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.model.training.options import TrainingConfig
from tt.model.transformer.config import TransformerConfig

_COUNTED = 4 * WINDOW  # records that are batched to estimate the length of an epoch


@dataclasses.dataclass(frozen=True)
class TrainingDataset:
    """A checked dataset folder on this machine, and the number of replicas that train on it."""

    folder: Path
    manifest: DatasetManifest
    vocabularies: VocabularyPair
    training: TrainingConfig
    replicas: int = 1

    @classmethod
    def open(
        cls,
        manifest: DatasetManifest,
        folder: Path,
        *,
        model: TransformerConfig,
        training: TrainingConfig,
    ) -> TrainingDataset:
        """Open and check a dataset folder for training with one replica.

        Raises:
          UserError: The dataset is unfinished, damaged or empty, its vocabulary does not fit the
            model, or a pair is longer than `batch_tokens`.
        """
        vocabularies = load_vocabularies(folder)
        manifest.check(
            folder,
            vocabularies=vocabularies,
            model_sizes=(model.source_vocabulary_size, model.target_vocabulary_size),
            batch_tokens=training.batch_tokens,
        )
        for split in (manifest.splits[name] for name in (TRAIN, VALIDATION)):
            check_shards([folder / name for name in split.shards], split.shard_sizes)
        return cls(folder, manifest, vocabularies, training)

    def updates_an_epoch(self) -> float:
        """Return the number of updates per epoch, estimated from a part of a large training split.

        This does not initialize TensorFlow's devices, so TensorFlow can still join a cluster later.
        """
        batches = self.batches(TRAIN).count(records=_COUNTED)
        return batches / self.training.batches_an_update(self.replicas)

    def batches(self, split: str) -> TokenBatches:
        """Return the batches of a split.

        The training split is shuffled. Augmentation and subword dropout apply only to it.
        """
        training, manifest = self.training, self.manifest
        rate, dropout = training.subword_dropout, None
        if rate and split == TRAIN:
            vocabularies = self.vocabularies
            source = SubwordDropout(vocabularies.source, rate)
            target = source if vocabularies.is_shared else SubwordDropout(vocabularies.target, rate)
            dropout = (source, target)
        augmentation = None
        if training.augment and split == TRAIN:
            augmentation = Augmentation(self.vocabularies.source, training.augment)
        return TokenBatches(
            files=[self.folder / name for name in manifest.splits[split].shards],
            max_tokens=training.batch_tokens,
            seed=training.seed,
            vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
            replicas=self.replicas,
            shuffle=split == TRAIN,
            records=manifest.splits[split].records,
            augmentation=augmentation,
            subword_dropout=dropout,
        )
