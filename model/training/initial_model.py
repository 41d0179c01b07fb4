"""The model that a run begins from: its architecture, its vocabulary and its weights."""

from __future__ import annotations

import dataclasses
import functools
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
from tt.model.json_files import describe_differences
from tt.model.text.vocabulary import load_vocabularies
from tt.model.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from tt.model.transformer.transformer import Transformer

Fetch = Callable[[str], Path]
_NO_SHAPE = ("dropout", "attention_dropout")  # the weights suit any


@dataclasses.dataclass(frozen=True)
class InitialModel:
    """A model folder, whose weights a run begins with."""

    name: str  # the absolute path of the model folder; of one elsewhere, as it was given
    known: str = ""  # its fingerprint when the run was begun, or ""
    fetch: Fetch = Path  # returns a local copy of a model elsewhere
    # What its card said when the run was begun, as `About.origin` gives it.
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def find(
        cls, given: str | Path, *, begun: Mapping[str, Any] | None, fetch: Fetch = Path
    ) -> InitialModel:
        """Finds a model, or the run folder that it lies in; `begun` is the run's configuration.

        The model of a run that was begun is not looked at: it goes on from its checkpoints.

        Raises:
          UserError: There is no model that TensorFlow loads.
        """
        saved = cls.of_run(begun, fetch=fetch)
        is_elsewhere = "://" in str(given)
        name = str(given) if is_elsewhere else str(Path(given).absolute())
        if saved and saved.name in (name, f"{name}/model"):
            return saved
        if not is_elsewhere:
            name = str(find_model_folder(given).absolute())
        return cls(name, fetch=fetch)

    @classmethod
    def of_run(
        cls, config: Mapping[str, Any] | None, *, fetch: Fetch = Path
    ) -> InitialModel | None:
        """Returns the model that a run was begun from, by its configuration."""
        saved = dict((config or {}).get("init_from") or {})
        if not saved:
            return None
        return cls(saved.pop("model"), saved.pop("fingerprint"), fetch, origin=saved)

    @functools.cached_property
    def folder(self) -> Path:
        """The model folder on this machine.

        Raises:
          UserError: There is none, or no model.
        """
        return find_model_folder(self.fetch(self.name))

    def to_json(self) -> dict[str, Any]:
        """Returns what the configuration of a run says of it.

        Raises:
          UserError: A file of the model is damaged.
        """
        if self.known:
            return {"model": self.name, "fingerprint": self.known, **self.origin}
        fingerprint, origin = model_fingerprint(self.folder), load_about(self.folder).origin
        return {"model": self.name, "fingerprint": fingerprint, **origin}

    @property
    def config(self) -> TransformerConfig:
        """The architecture."""
        return load_config(self.folder)

    def check_vocabulary(self, dataset: Path) -> None:
        """Check that a dataset has the model's vocabulary, and normalizes texts like the model.

        Raises:
          UserError: It does not.
        """
        ours, theirs = load_vocabularies(self.folder), load_vocabularies(dataset)
        is_same = (
            ours.files == theirs.files
            and ours.source.normalization == theirs.source.normalization
            and all(
                (self.folder / name).read_bytes() == (dataset / name).read_bytes()
                for name in ours.files[1:]  # the first one describes the others
            )
        )
        rule = (
            f"the dataset {dataset} must have the vocabulary and the normalization of {self.name}: "
            f"make it with `tt preprocess --vocab-of {self.name}`"
        )
        require(is_same, rule)

    def check_shape(self, asked: TransformerConfig) -> None:
        """Check that the weights suit an architecture.

        Raises:
          UserError: They do not.
        """
        found = describe_differences(
            dataclasses.asdict(self.config), dataclasses.asdict(asked), ignored=_NO_SHAPE
        )
        if found:
            raise UserError(
                f"`init_from` takes the shape of {self.name}, but {'; '.join(found)}: leave these "
                "options and `preset` out, or train without `init_from`"
            )

    def load_into(self, model: Transformer) -> None:
        """Gives a model the weights.

        Raises:
          UserError: The folder is damaged, or has changed since the run was begun.
        """
        from tt.model.formats.weights import load_model

        if self.known and model_fingerprint(self.folder) != self.known:
            raise UserError(
                f"{self.name} has changed since the run was begun from it: put that model back, "
                "or train in another folder with `run`"
            )
        source = load_model(self.folder).model
        weights = {variable.path: variable.numpy() for variable in source.trainable_variables}
        for variable in model.trainable_variables:
            variable.assign(weights[variable.path])
