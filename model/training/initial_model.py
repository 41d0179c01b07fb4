"""The initial model of a run: its architecture, its vocabulary and its weights."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt.model.errors import UserError, require
from tt.model.formats.model_folder import (
    find_model_folder,
    load_about,
    load_config,
    model_fingerprint,
)
from tt.model.imports.fetching import TENSORFLOW, fetch_model, is_huggingface, pin
from tt.model.imports.hub import parse_address
from tt.model.json_files import describe_differences
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.options import CLUSTER
from tt.model.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from tt.model.transformer.transformer import Transformer

_LOGGER = logging.getLogger(__name__)
Fetch = Callable[[str], Path]
_NO_SHAPE = ("dropout", "attention_dropout")  # options that do not change the weights' shapes


@dataclasses.dataclass(frozen=True)
class InitialModel:
    """A model folder whose weights a new run starts from."""

    name: str  # absolute path of the model folder, or the URL that the user gave
    known: str = ""  # fingerprint of the model when the run began; "" for a new run
    fetch: Fetch = Path  # returns a local copy of a remote model
    # `About.origin` of the model card when the run began.
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def find(
        cls, given: str | Path, *, resumed: Mapping[str, Any] | None, fetch: Fetch = Path
    ) -> InitialModel:
        """Find the initial model.

        The files of the model may be missing if the run to resume started from this model, because
        the run continues from its checkpoints.

        Args:
          given: Model folder, or a run folder that contains one.
          resumed: Saved configuration of the run to resume, or None for a new run.
          fetch: Returns a local copy of a remote model.

        Raises:
          UserError: The folder contains no model that TensorFlow can load.
        """
        saved = cls.of_run(resumed, fetch=fetch)
        address = parse_address(str(given))
        if address is not None:
            names = (saved.name, saved.name.partition("@")[0]) if saved else ()
            is_same = str(address) in names
            return saved if saved and is_same else cls(pin(str(address)), fetch=fetch)
        is_elsewhere = "://" in str(given)
        name = str(given) if is_elsewhere else str(Path(given).absolute())
        if saved and saved.name in (name, f"{name}/model"):
            return saved
        if not is_elsewhere and not is_huggingface(given):
            name = str(find_model_folder(given).absolute())
        return cls(name, fetch=fetch)

    @classmethod
    def of_run(
        cls, config: Mapping[str, Any] | None, *, fetch: Fetch = Path
    ) -> InitialModel | None:
        """Return the initial model that a run's configuration names, or None."""
        saved = dict((config or {}).get("init_from") or {})
        if not saved:
            return None
        return cls(saved.pop("model"), saved.pop("fingerprint"), fetch, origin=saved)

    @functools.cached_property
    def folder(self) -> Path:
        """The model folder on this machine; a remote model is copied first.

        Raises:
          UserError: The folder does not exist or contains no model.
        """
        if is_huggingface(self.name):
            # TensorFlow must connect several workers before it computes.
            are_several = bool(os.environ.get(CLUSTER))
            return fetch_model(
                self.name, engine=TENSORFLOW, report=_LOGGER.info, is_apart=are_several
            )
        return find_model_folder(self.fetch(self.name))

    def to_json(self) -> dict[str, Any]:
        """Return the entry for the configuration of a run.

        Raises:
          UserError: A file of the model is damaged.
        """
        if self.known:
            return {"model": self.name, "fingerprint": self.known, **self.origin}
        fingerprint, origin = model_fingerprint(self.folder), load_about(self.folder).origin
        return {"model": self.name, "fingerprint": fingerprint, **origin}

    @property
    def config(self) -> TransformerConfig:
        """The architecture of the model."""
        return load_config(self.folder)

    def check_vocabulary(self, dataset: Path) -> None:
        """Check that a dataset has the model's vocabulary and text normalization.

        Raises:
          UserError: The vocabulary or the normalization differs.
        """
        ours, theirs = load_vocabularies(self.folder), load_vocabularies(dataset)
        is_same = (
            ours.files == theirs.files
            and ours.source.normalization == theirs.source.normalization
            and all(
                (self.folder / name).read_bytes() == (dataset / name).read_bytes()
                for name in ours.files[1:]  # the first file describes the others
            )
        )
        rule = (
            f"the dataset {dataset} and the model {self.name} have different vocabularies or text "
            f"normalizations. Make the dataset with `tt preprocess --vocab-of {self.name}`"
        )
        require(is_same, rule)

    def check_shape(self, asked: TransformerConfig) -> None:
        """Check that the weights fit the requested architecture.

        Raises:
          UserError: The architectures differ.
        """
        found = describe_differences(
            dataclasses.asdict(self.config), dataclasses.asdict(asked), ignored=_NO_SHAPE
        )
        if found:
            raise UserError(
                f"the options do not fit the model {self.name} of `init_from`: {'; '.join(found)}. "
                "Remove these options and `preset`, or remove `init_from`"
            )

    def load_into(self, model: Transformer) -> None:
        """Copy the weights into a model of the same architecture.

        Raises:
          UserError: The model folder is damaged, or has changed since the run began.
        """
        from tt.model.formats.weights import load_model

        if self.known and model_fingerprint(self.folder) != self.known:
            raise UserError(
                f"the model {self.name} has changed since the run began. Restore the original "
                "model, or choose another `run`"
            )
        source = load_model(self.folder).model
        weights = {variable.path: variable.numpy() for variable in source.trainable_variables}
        for variable in model.trainable_variables:
            variable.assign(weights[variable.path])
