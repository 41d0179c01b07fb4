"""Plan and run a training, from a dataset folder to an exported model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt.model.dataset.manifest import VALIDATION, DatasetManifest
from tt.model.errors import UserError, check_fields, checked, counted, one_of
from tt.model.formats.model_card import LITTLE_KNOWN, TrainingData
from tt.model.formats.model_folder import load_about
from tt.model.training.defaults import configure, describe_choices, option_warnings
from tt.model.training.initial_model import InitialModel
from tt.model.training.options import DATASET_SOURCE, EXCHANGES, STRATEGIES, TrainingConfig
from tt.model.transformer.config import PRESETS, TransformerConfig

if TYPE_CHECKING:  # TensorFlow is imported by the functions that need it
    import tensorflow as tf

    from tt.model.training.reports import Report
    from tt.model.training.splits import TrainingDataset
    from tt.model.training.stops import StopRequest
    from tt.model.training.trainer import Trainer


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A request to train a model on a dataset.

    >>> request = TrainRequest(dataset="dataset", run="run", training={"steps": 2})
    >>> job = request.plan()  # doctest: +SKIP
    >>> job.run(print)  # doctest: +SKIP
    'run/model'

    Attributes:
      dataset: Train on this dataset folder, from `tt preprocess`.
      run: Write to this run folder; repeat the command to resume the run.
      preset: Train a model of this size. By default, the dataset's size decides.
      model: Architecture, or some fields of `TransformerConfig`. A resumed run keeps its values
        for the other fields; in a new run, the preset or the dataset's size decides.
      training: Options of the training, or some fields of `TrainingConfig`. A resumed run keeps
        its values for the other fields; in a new run, the dataset's size decides.
      strategy: Distribute the training over devices with this strategy.

        "one-device" uses one device, "mirrored" all GPUs of this machine, and "multi-worker" the
        machines that the variable TF_CONFIG describes. "auto" selects a fitting strategy.
      exchange: Exchange the gradients of several machines in this way.

        "auto" uses NVIDIA's NCCL if the machines have GPUs, and gRPC otherwise. "ring" always uses
        gRPC, which is slower between GPUs.
      devices: Devices to train on, for example "GPU:0", "0" or "CPU:0". By default, all GPUs, or
        the CPU.
      init_from: Start with the weights of this model folder, run folder or hf:ORG/NAME.

        The run also uses the model's architecture. The optimizer starts from zero, and the dataset
        must have the model's vocabulary (`tt preprocess --vocab-of`).
      dataset_name: URL of a remote dataset, if `dataset` is a local copy of it. The run folder
        stores this name.
      fetch_model: Function that returns a local copy of a remote `init_from`.
    """

    dataset: str | Path
    run: str | Path
    preset: str | None = one_of(tuple(PRESETS), default=None)
    model: TransformerConfig | Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: TrainingConfig | Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strategy: str = one_of(STRATEGIES, default="auto")
    exchange: str = one_of(EXCHANGES, default="auto")
    devices: tuple[str, ...] = ()
    init_from: str | Path | None = None
    dataset_name: str = ""
    fetch_model: Callable[[str], Path] = Path

    def __post_init__(self) -> None:
        for kind, given in ((TransformerConfig, self.model), (TrainingConfig, self.training)):
            if isinstance(given, Mapping):
                check_fields(kind, {k: v for k, v in given.items() if v is not None})

    def check(self) -> None:
        """Check the dataset and the options without importing TensorFlow.

        The options of an existing or remote run are not checked here, because that needs
        TensorFlow.

        Raises:
          UserError: The folder contains no dataset, or a value is out of range.
        """
        manifest = DatasetManifest.load(Path(self.dataset))
        if not self._may_resume():
            # TensorFlow counts the replicas. Their number makes no option invalid.
            self._configure(self._given(), manifest=manifest, resumed=None, replicas=1)

    def plan(self) -> TrainJob:
        """Return the planned training, after reading the dataset and the run without writing.

        Raises:
          UserError: The dataset cannot be used, the run folder contains another run or other files,
            or a value is out of range.
        """
        from tt.model.training.run_folder import RunFolder
        from tt.model.training.splits import TrainingDataset
        from tt.model.training.strategies import count_replicas

        replicas = count_replicas(self.strategy, devices=self.devices)
        folder = Path(self.dataset)
        manifest = DatasetManifest.load(folder)
        run = RunFolder(self.run) if self._may_resume() else None
        resumed = run.resumed_config(dataset=manifest.fingerprint) if run else None
        given, notes = self._given(), []
        configured = functools.partial(
            self._configure, manifest=manifest, resumed=resumed, replicas=replicas
        )
        model, training, initial = configured(given)
        if initial and resumed is None:
            notes.append(f"Starting from the weights of {initial.name} with a new optimizer state.")
        if epochs := given.get("epochs"):
            if resumed and epochs == resumed["training"].get("epochs"):
                # Keep the number of steps even if the number of replicas has changed.
                given["steps"] = resumed["training"]["steps"]
            else:
                data = TrainingDataset.open(manifest, folder, model=model, training=training)
                given["steps"], note = _steps_of_epochs(epochs, data, replicas=replicas)
                notes.append(note)
            model, training, _ = configured(given)
        is_whole = isinstance(self.model, TransformerConfig)
        if resumed is None and not (is_whole or isinstance(self.training, TrainingConfig)):
            shape = initial.config if initial else None
            notes += describe_choices(given, manifest=manifest, initial=shape, replicas=replicas)
        if isinstance(self.training, TrainingConfig):
            training = dataclasses.replace(self.training, steps=training.steps)
        data = TrainingDataset.open(manifest, folder, model=model, training=training)
        job = TrainJob(request=self, model=model, data=data, initial=initial, notes=notes)
        if resumed is None:
            RunFolder(self.run).check_place()
        elif run:
            run.check(job.run_config(replicas=data.replicas))
        return job

    def _configure(
        self,
        given: Mapping[str, Any],
        *,
        manifest: DatasetManifest,
        resumed: Mapping[str, Any] | None,
        replicas: int,
    ) -> tuple[TransformerConfig, TrainingConfig, InitialModel | None]:
        initial = InitialModel.of_run(resumed, fetch=self.fetch_model)
        if self.init_from is not None:
            initial = InitialModel.find(self.init_from, resumed=resumed, fetch=self.fetch_model)
        new = initial if initial and not initial.known else None
        if new:
            new.check_vocabulary(Path(self.dataset))
        shape = new.config if new else None
        model, training = configure(
            given, manifest=manifest, resumed=resumed, initial=shape, replicas=replicas
        )
        if isinstance(self.model, TransformerConfig):
            model = self.model
        if new:
            new.check_shape(model)
        return model, training, initial

    def _given(self) -> dict[str, Any]:
        training = _fields(self.training)
        if isinstance(self.training, Mapping) and training.keys() >= {"steps", "epochs"}:
            raise UserError(
                "`epochs` and `steps` cannot be combined. Received: "
                f"{training['epochs']} and {training['steps']}. Remove either option"
            )
        parts = {"preset": self.preset, **_fields(self.model), **training}
        return {name: value for name, value in parts.items() if value is not None}

    def _may_resume(self) -> bool:
        return "://" in str(self.run) or Path(self.run, "config.json").exists()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainJob:
    """A planned training."""

    request: TrainRequest
    model: TransformerConfig
    data: TrainingDataset
    initial: InitialModel | None  # model that the run starts from, or started from
    notes: list[str]  # messages about the options that were chosen for a new run

    @property
    def training(self) -> TrainingConfig:
        """The options of the training."""
        return self.data.training

    @property
    def doubts(self) -> list[str]:
        """Warnings about options that are likely to spoil this training."""
        manifest = self.data.manifest
        pairs = manifest.splits[VALIDATION].records
        found = option_warnings(self.training, width=self.model.d_model, validation_pairs=pairs)
        if self.initial and not self.initial.known:  # a resumed run may have lost the model
            other = load_about(self.initial.folder).data.describe_other_languages(
                source_language=manifest.source_language, target_language=manifest.target_language
            )
            found += [f"{self.initial.name} {other}: {LITTLE_KNOWN}"] if other else []
        return found

    def run_config(self, *, replicas: int) -> dict[str, Any]:
        """Return the configuration of the run, as the run folder saves it.

        Raises:
          UserError: A file of the initial model is damaged.
        """
        manifest = self.data.manifest
        data = TrainingData.of(manifest)
        return {
            "model": self.model.to_json(),
            "training": dataclasses.asdict(self.training),
            "dataset": data.fingerprint,
            "data": dataclasses.asdict(data),
            "replicas": replicas,
            **({"init_from": self.initial.to_json()} if self.initial else {}),
            DATASET_SOURCE: {
                "folder": self.request.dataset_name or str(self.data.folder.absolute()),
                "pairs": manifest.pairs_kept,
                "corpora": data.corpora,
            },
        }

    def updates_an_epoch(self, replicas: int) -> int:
        """Return the approximate number of updates per epoch, at least 1."""
        data = dataclasses.replace(self.data, replicas=replicas)
        return max(1, round(data.updates_an_epoch()))

    def run(self, report: Report) -> str:
        """Start or resume the training, export the model, and return the model's folder.

        Args:
          report: Called with each report; see `Trainer.train`.
        """
        from tt.model.training.strategies import lost_worker_errors, make_strategy

        strategy = make_strategy(
            self.request.strategy, devices=self.request.devices, exchange=self.request.exchange
        )
        with lost_worker_errors(strategy):
            return self.start(strategy).train(report)

    def start(
        self, strategy: tf.distribute.Strategy, *, stop: StopRequest | None = None
    ) -> Trainer:
        """Claim the run folder, and create or restore the model.

        Args:
          strategy: The strategy that distributes the training.
          stop: A request object through which the caller can stop the training.

        Raises:
          UserError: The run folder contains another run, or another process trains there.
        """
        from tt.model.training.trainer import Trainer

        return Trainer(
            data=self.data,
            run=self.request.run,
            model_config=self.model,
            config=self.run_config(replicas=strategy.num_replicas_in_sync),
            strategy=strategy,
            stop=stop,
            initial=self.initial,
        )


def _steps_of_epochs(epochs: int, data: TrainingDataset, *, replicas: int) -> tuple[int, str]:
    """Return the number of updates in some epochs, and a line that tells the user."""
    updates = dataclasses.replace(data, replicas=replicas).updates_an_epoch()
    steps = max(1, round(epochs * updates))
    return steps, (
        f"{counted(epochs, 'epoch')} of {updates:,.4g} updates with "
        f"{counted(replicas, 'replica')}: `steps={steps}`"
    )


def _fields(given: TransformerConfig | TrainingConfig | Mapping[str, Any]) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else dataclasses.asdict(given)
