"""The batches of a dataset's splits, as a training reads them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tt.model.dataset.batches import WINDOW, SubwordDropout, TokenBatches
from tt.model.dataset.manifest import TRAIN, DatasetManifest
from tt.model.dataset.tfrecords import check_shards
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.model.training.options import TrainingConfig
from tt.model.transformer.config import TransformerConfig

_COUNTED = 4 * WINDOW  # records, for the length of an epoch


@dataclasses.dataclass(frozen=True)
class TrainingDataset:
    """A dataset folder on this machine, checked for a training by `replicas` together."""

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
        """Opens a dataset folder for one replica, and checks it.

        Raises:
          UserError: It is unfinished or damaged, has no records or another vocabulary than the
            model, or a pair is longer than the token budget.
        """
        vocabularies = load_vocabularies(folder)
        manifest.check(
            folder,
            vocabularies=vocabularies,
            model_sizes=(model.source_vocabulary_size, model.target_vocabulary_size),
            batch_tokens=training.batch_tokens,
        )
        for split in manifest.splits.values():
            check_shards([folder / name for name in split.shards], split.shard_sizes)
        return cls(folder, manifest, vocabularies, training)

    def updates_an_epoch(self) -> float:
        """Returns how many updates a pass over the training split takes; of a large one, about.

        Nothing of TensorFlow's is begun: a cluster may be started afterwards.
        """
        batches = self.batches(TRAIN).count(records=_COUNTED)
        return batches / self.training.batches_an_update(self.replicas)

    def batches(self, split: str) -> TokenBatches:
        """Returns the batches of a split; the training split is shuffled, with subword dropout."""
        training, manifest = self.training, self.manifest
        rate, dropout = training.subword_dropout, None
        if rate and split == TRAIN:
            vocabularies = self.vocabularies
            source = SubwordDropout(vocabularies.source, rate)
            target = source if vocabularies.is_shared else SubwordDropout(vocabularies.target, rate)
            dropout = (source, target)
        return TokenBatches(
            files=[self.folder / name for name in manifest.splits[split].shards],
            max_tokens=training.batch_tokens,
            seed=training.seed,
            vocabulary_sizes=(manifest.source_vocabulary_size, manifest.target_vocabulary_size),
            replicas=self.replicas,
            shuffle=split == TRAIN,
            records=manifest.splits[split].records,
            subword_dropout=dropout,
        )
