"""A training as it is asked for: from the names of a dataset and a run to a trained model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.dataset.manifest import VALIDATION, DatasetManifest
from model.errors import UserError, accept_one_string, counted, one_of
from model.formats.model_card import LITTLE_KNOWN, TrainingData
from model.formats.model_folder import load_about
from model.training.choices import configure, describe_choices, doubts
from model.training.identity import describe_dataset
from model.training.initial_model import InitialModel
from model.training.options import TrainingConfig, run_config, run_defaults
from model.transformer.config import PRESETS, TransformerConfig

if TYPE_CHECKING:  # TensorFlow is imported by the functions that need it
    import tensorflow as tf

    from model.training.reports import Report
    from model.training.splits import TrainingDataset
    from model.training.stops import StopRequest
    from model.training.trainer import Trainer
    from model.transformer.transformer import Transformer

STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker")  # of `model.training.strategies`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A training to plan and run.

    >>> request = TrainRequest(dataset="dataset", run="run", training={"steps": 2})
    >>> job = request.plan()  # doctest: +SKIP
    >>> job.run(print)  # doctest: +SKIP
    'run/model'

    Attributes:
      dataset: Dataset folder, from `tt preprocess`.
      run: Run folder to write, local or gs://; the same command again resumes it.
      preset: Name of the model's size: "tiny", "small", "base", "big", "student-tiny" or
        "student-base". By default the dataset's size chooses.
      model: Architecture, or some fields of `TransformerConfig`. The others are as the run was
        begun; in a new one the preset or the dataset's size chooses them.
      training: Options of the training, or some fields of `TrainingConfig`; likewise.
      strategy: Devices to train on: "auto", "one-device", "mirrored" (all GPUs of this machine) or
        "multi-worker" (by TF_CONFIG). Tested on CPUs alone: no GPU has run tt yet.
      devices: Devices such as GPU:0 and GPU:1, or 0 and 1, or CPU:0. By default all GPUs, or the
        CPU.
      init_from: Model to begin with, ours or imported: a model folder or the run folder around it.
        Its shape and weights are taken; the optimizer begins anew, and the dataset must have its
        vocabulary (`tt preprocess --vocab-of`).
      dataset_name: Name of the dataset in the run folder, where it is a copy of a remote one.
      fetch_model: Function that returns a local copy of a remote `init_from`; called where it is
        needed.
    """

    dataset: str | Path
    run: str | Path
    preset: str | None = one_of(tuple(PRESETS), default=None)
    model: TransformerConfig | Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: TrainingConfig | Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strategy: str = one_of(STRATEGIES, default="auto")
    devices: tuple[str, ...] = ()
    init_from: str | Path | None = None
    dataset_name: str = ""
    fetch_model: Callable[[str], Path] = Path

    def __post_init__(self) -> None:
        accept_one_string(self)

    def check(self) -> None:
        """Checks what can be known of a new local run before TensorFlow is imported.

        Raises:
          UserError: The dataset is none, or a value is out of range.
        """
        manifest = DatasetManifest.load(Path(self.dataset))
        if not self._may_be_begun():
            self._configure(self._given(), manifest, begun=None)

    def plan(self, *, is_to_run: bool = True) -> TrainJob:
        """Looks up the dataset and the run, and writes nothing.

        Args:
          is_to_run: Whether the job shall be run, so that no other process may train there now.

        Raises:
          UserError: The dataset cannot be trained on, the run folder holds another run or something
            else, another process trains there, or a value is out of range.
        """
        from model.training.splits import TrainingDataset

        folder = Path(self.dataset)
        manifest = DatasetManifest.load(folder)
        begun = self._begun(manifest)
        given = self._given()
        model, training, initial = self._configure(given, manifest, begun=begun)
        notes = []
        if initial and begun is None:
            notes.append(f"Begins with the weights of {initial.name}, and an optimizer anew.")
        if epochs := self._epochs_to_count(given, begun):
            data = TrainingDataset.open(manifest, folder, model=model, training=training)
            given["steps"], note = self._steps_of_epochs(epochs, data)
            notes.append(note)
            model, training, _ = self._configure(given, manifest, begun=begun)
        is_whole = isinstance(self.model, TransformerConfig)
        if begun is None and not (is_whole or isinstance(self.training, TrainingConfig)):
            notes += describe_choices(
                given,
                manifest=manifest,
                model=model,
                training=training,
                initial=initial.config if initial else None,
            )
        if isinstance(self.training, TrainingConfig):
            training = dataclasses.replace(self.training, steps=training.steps)
        data = TrainingDataset.open(manifest, folder, model=model, training=training)
        job = TrainJob(request=self, model=model, data=data, initial=initial, notes=notes)
        self._check_run(job, is_begun=begun is not None, is_to_run=is_to_run)
        return job

    def _configure(
        self,
        given: Mapping[str, Any],
        manifest: DatasetManifest,
        *,
        begun: Mapping[str, Any] | None,
    ) -> tuple[TransformerConfig, TrainingConfig, InitialModel | None]:
        initial = InitialModel.of_run(begun, fetch=self.fetch_model)
        if self.init_from is not None:
            initial = InitialModel.find(self.init_from, begun=begun, fetch=self.fetch_model)
        is_new = initial is not None and not initial.known
        if initial and is_new:
            initial.check_vocabulary(Path(self.dataset))
        model, training = configure(
            given,
            manifest=manifest,
            begun=begun,
            initial=initial.config if initial and is_new else None,
        )
        if isinstance(self.model, TransformerConfig):
            model = self.model
        if initial and is_new:
            initial.check_shape(model, preset=given.get("preset"), given=given.keys())
        if training.r_drop and not (model.dropout or model.attention_dropout):
            raise UserError(
                "`r_drop` compares two passes with different dropout, so `dropout` must be above "
                f"0. Received: {model.dropout}"
            )
        return model, training, initial

    def _check_run(self, job: TrainJob, *, is_begun: bool, is_to_run: bool) -> None:
        from model.training.run_folder import RunFolder

        if not is_begun:
            RunFolder(self.run).check_place()
            return
        data = job.data
        config = run_config(
            model=job.model,
            training=data.training,
            data=TrainingData.of(data.manifest),
            replicas=data.replicas,
            initial=job.initial,
        )
        name = self.dataset_name or str(data.folder.absolute())
        is_alone = is_to_run and self.strategy != "multi-worker"
        config |= describe_dataset(data.manifest, folder=name)
        defaults = run_defaults(model=job.model, training=data.training)
        RunFolder(self.run).check(config, is_alone=is_alone, defaults=defaults)

    def _epochs_to_count(
        self, given: dict[str, Any], begun: Mapping[str, Any] | None
    ) -> int | None:
        """Returns the epochs whose steps are not known; what was begun with them keeps its own."""
        epochs: int | None = given.get("epochs")
        if epochs and begun and epochs == begun["training"].get("epochs"):
            given["steps"] = begun["training"]["steps"]
            return None
        return epochs

    def _steps_of_epochs(self, epochs: int, data: TrainingDataset) -> tuple[int, str]:
        """Returns the updates of so many epochs, and a line that says so."""
        from model.training.strategies import count_replicas

        replicas = count_replicas(self.strategy, devices=self.devices)
        updates = dataclasses.replace(data, replicas=replicas).updates_an_epoch()
        steps = max(1, round(epochs * updates))
        return steps, (
            f"{counted(epochs, 'epoch')} of {updates:,.4g} updates, on "
            f"{counted(replicas, 'replica')}: `steps={steps}`"
        )

    def _given(self) -> dict[str, Any]:
        training = _fields(self.training)
        if isinstance(self.training, Mapping) and training.keys() >= {"steps", "epochs"}:
            raise UserError(
                "`epochs` takes the place of `steps`: give one of them. Received: "
                f"{training['epochs']} and {training['steps']}"
            )
        parts = ({"preset": self.preset}, _fields(self.model), training)
        return {k: v for part in parts for k, v in part.items() if v is not None}

    def _may_be_begun(self) -> bool:
        return "://" in str(self.run) or Path(self.run, "config.json").exists()

    def _begun(self, manifest: DatasetManifest) -> dict[str, Any] | None:
        """Returns the configuration of the run that is gone on with, if there is one."""
        if not self._may_be_begun():
            return None
        from model.training.run_folder import RunFolder

        return RunFolder(self.run).begun(dataset=manifest.fingerprint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainJob:
    """A planned training."""

    request: TrainRequest
    model: TransformerConfig
    data: TrainingDataset
    initial: InitialModel | None  # whose weights it begins with
    notes: list[str]  # on what was chosen for a new run

    @property
    def training(self) -> TrainingConfig:
        """Options of the training."""
        return self.data.training

    @property
    def doubts(self) -> list[str]:
        """Lines on what speaks against this training."""
        manifest = self.data.manifest
        pairs = manifest.splits[VALIDATION].records
        found = doubts(self.training, width=self.model.d_model, validation_pairs=pairs)
        if self.initial and not self.initial.known:  # else the run goes on from its checkpoints
            other = load_about(self.initial.folder).data.describe_other_languages(
                source_language=manifest.source_language, target_language=manifest.target_language
            )
            found += [f"{self.initial.name} {other}: {LITTLE_KNOWN}"] if other else []
        return found

    def updates_an_epoch(self, replicas: int) -> int:
        """Returns about how many updates one pass over the training split takes."""
        data = dataclasses.replace(self.data, replicas=replicas)
        return max(1, round(data.updates_an_epoch()))

    def run(self, report: Report) -> str:
        """Trains, or goes on with a training, and exports the model: see `Trainer.train`."""
        from model.training.strategies import lost_worker_errors, make_strategy

        strategy = make_strategy(self.request.strategy, devices=self.request.devices)
        with lost_worker_errors(strategy):
            return self.start(strategy).train(report)

    def start(
        self, strategy: tf.distribute.Strategy, *, stop: StopRequest | None = None
    ) -> Trainer:
        """Claims the run folder, builds or restores the model; asks `stop` after every batch.

        Raises:
          UserError: The run folder holds another run, or another process trains there.
        """
        from model.training.trainer import Trainer

        request = self.request
        return Trainer(
            data=self.data,
            run=request.run,
            model_config=self.model,
            strategy=strategy,
            stop=stop,
            initial=self.initial,
            dataset_name=request.dataset_name,
        )


def parameters_by_part(model: Transformer) -> list[tuple[str, int]]:
    """Returns the number of trained parameters of each part, in the order of the model.

    A part is a sub-layer, such as "encoder_0/attention", or what stands alone, as "embedding".
    """
    counts: dict[str, int] = {}
    for variable in model.trainable_variables:
        *part, _ = variable.path.split("/")  # the last is the name of the matrix
        name = "/".join(part[:2])
        counts[name] = counts.get(name, 0) + int(variable.value.shape.num_elements())
    return list(counts.items())


def _fields(given: TransformerConfig | TrainingConfig | Mapping[str, Any]) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else dataclasses.asdict(given)
