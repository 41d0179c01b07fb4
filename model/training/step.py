"""The compiled functions of training, under any strategy: a batch to an update of the weights.

Axes: B rows of the global batch, S source, T target. Every replica gets the whole batch and takes
its share of the rows, so a batch is divided by its true number of tokens, however uneven the shares
are. Replicas exchange gradients once an update, and what a step returns stays on its device until
it is read: nothing else waits for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from model.training.loss import TokenSums, batch_sums
from model.training.optimizer import Accumulator, Adam, Average
from model.training.strategies import is_multi_worker
from model.transformer.layers import Dropout
from model.transformer.transformer import Transformer

# Gradients travel in packs of this size: the first are under way while the last are computed.
_EXCHANGE = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=32 * 2**20)
_PAIR = (tf.TensorSpec([None, None], tf.int32),) * 2


class UpdateScalars(NamedTuple):
    """The scalars that an update depends on: of NumPy outside of the step, tensors inside."""

    place: Any  # int32, of the batch in the whole run; with the seed it makes the dropout masks
    tokens: Any  # float32, real target tokens of all batches of the update
    rate: Any  # float32, the learning rate
    update: Any  # float32, the number of the update; the first is 1
    stop: Any  # float32, whether this process was told to stop


_SCALARS = UpdateScalars(tf.TensorSpec([], tf.int32), *[tf.TensorSpec([], tf.float32)] * 4)


class StepResult(NamedTuple):
    """What is known after a batch, of all replicas."""

    sums: TokenSums  # over the real target tokens
    gradient_norm: float  # global, before clipping; 0 if only accumulated
    stops: float  # how many replicas' processes were told to stop


# The parts of a step's result, [6] each on the device that it was made on; they are to be added up.
Unread = tuple[tf.Tensor, ...]


class TrainingStep:
    """A model with its optimizer, and what is done to them batch by batch.

    The model was made in the scope of the strategy; `seed` is that of dropout, below 2^30;
    `label_smoothing`, `clip_norm`, `r_drop` and `ema` are as in `TrainingConfig`. It `accumulates`
    where an update may take several batches.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        strategy: tf.distribute.Strategy,
        seed: int,
        label_smoothing: float,
        clip_norm: float | None,
        accumulates: bool,
        r_drop: float | None = None,
        ema: float | None = None,
    ) -> None:
        self._model = model
        self._strategy = strategy
        self._replicas: int = strategy.num_replicas_in_sync
        self._seed = seed
        self._label_smoothing = label_smoothing
        self._clip_norm, self._r_drop = clip_norm, r_drop
        self._variables = [variable.value for variable in model.trainable_variables]
        with strategy.scope():
            self.adam = Adam(self._variables)
            self.accumulator = Accumulator(self._variables) if accumulates else None
            self.average = Average(self._variables, decay=ema) if ema else None
        with_scalars = [*_PAIR, _SCALARS]
        self._update = _compiled(self._update_on_batch, with_scalars)
        self._accumulate = _compiled(self._accumulate_batch, with_scalars)
        self._sums = _compiled(self._sums_of_batch, _PAIR)

    def update(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Updates the weights by a batch and what was accumulated; see `read`."""
        return cast(Unread, self._update(source, target, scalars))

    def accumulate(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Adds a batch's gradients to those of the update that is to come; see `read`."""
        return cast(Unread, self._accumulate(source, target, scalars))

    @staticmethod
    def read(result: Unread) -> StepResult:
        """Waits for a step's result and returns it."""
        *sums, norm, stops = np.sum([part.numpy() for part in result], axis=0).tolist()
        return StepResult(TokenSums(*sums), norm, stops)

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which the model has its averaged weights, if it has such."""
        return self.average.in_place() if self.average else contextlib.nullcontext()

    def sums(self, source: np.ndarray, target: np.ndarray) -> TokenSums:
        """Returns the sums of a validation batch: no dropout, no update."""
        return TokenSums(*self._sums(source, target).numpy().tolist())

    @property
    def traces(self) -> int:
        """How often any of the functions was traced."""
        functions = (self._update, self._accumulate, self._sums)
        return sum(function.experimental_get_tracing_count() for function in functions)

    def _update_on_batch(
        self, source: tf.Tensor, target: tf.Tensor, scalars: UpdateScalars
    ) -> Unread:
        def update(source: tf.Tensor, target: tf.Tensor, scalars: UpdateScalars) -> tf.Tensor:
            gradients, sums = self._own_gradients(
                source, target, tokens=scalars.tokens, seed=self._dropout_seed(scalars.place)
            )
            if self.accumulator:
                before = self.accumulator.drain()
                gradients = [
                    gradient + pending / scalars.tokens
                    for gradient, pending in zip(gradients, before, strict=True)
                ]
            *gradients, told = self._sum_over_replicas(
                [*gradients, tf.stack([*sums, scalars.stop])]
            )
            norm = tf.linalg.global_norm(gradients)
            if self._clip_norm is not None:
                factor = self._clip_norm / tf.maximum(norm, self._clip_norm)
                gradients = [gradient * factor for gradient in gradients]
            self.adam.apply(gradients, rate=scalars.rate, update=scalars.update)
            if self.average:
                self.average.follow(scalars.update)
            return tf.concat([told[:-1], [norm], told[-1:]], 0)

        # All replicas know it all.
        return self._run_apart(update, source, target, scalars)[:1]

    def _accumulate_batch(
        self, source: tf.Tensor, target: tf.Tensor, scalars: UpdateScalars
    ) -> Unread:
        has_other_processes = is_multi_worker(self._strategy)

        def accumulate(source: tf.Tensor, target: tf.Tensor, scalars: UpdateScalars) -> tf.Tensor:
            assert self.accumulator
            gradients, sums = self._own_gradients(
                source, target, tokens=1.0, seed=self._dropout_seed(scalars.place)
            )
            self.accumulator.add(gradients)
            told = tf.stack([*sums, 0.0, scalars.stop])
            # What other processes know cannot be read here later.
            return self._sum_over_replicas([told])[0] if has_other_processes else told

        parts = self._run_apart(accumulate, source, target, scalars)
        return parts[:1] if has_other_processes else parts

    def _sums_of_batch(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        def sums(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            return tf.stack(self._row_sums(*self._own_rows(source, target), dropout=None))

        return self._run(sums, source, target)

    def _run(self, function: Callable[..., tf.Tensor], *args: Any) -> tf.Tensor:
        """Adds up what a function returns on every replica; whoever calls this reads it at once."""
        return self._strategy.reduce("SUM", self._on_replicas(function, *args), axis=None)

    def _run_apart(self, function: Callable[..., tf.Tensor], *args: Any) -> Unread:
        """Returns what a function returns on each replica of this process, where it was made."""
        found = self._on_replicas(function, *args)
        return cast(Unread, self._strategy.experimental_local_results(found))

    def _on_replicas(self, function: Callable[..., tf.Tensor], *args: Any) -> Any:
        # As `autograph=False`: nothing here needs to be rewritten, which takes seconds.
        plain = tf.autograph.experimental.do_not_convert(function)
        return self._strategy.run(plain, args=args)

    @staticmethod
    def _sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Adds up what the replicas of all processes give, in a replica's context."""
        context, total = tf.distribute.get_replica_context(), tf.distribute.ReduceOp.SUM
        return cast(list[tf.Tensor], context.all_reduce(total, values, options=_EXCHANGE))

    def _own_gradients(
        self,
        source: tf.Tensor,
        target: tf.Tensor,
        *,
        tokens: tf.Tensor | float,
        seed: tf.Tensor | None,
    ) -> tuple[list[tf.Tensor], TokenSums]:
        """Returns the gradients of this replica's loss over `tokens`, and its sums.

        Source and target are int32 [B, S] and [B, T], of all replicas; without seed no dropout.
        """
        rows = self._own_rows(source, target)
        with tf.GradientTape() as tape:
            dropout = None if seed is None else Dropout(seed)
            sums = self._row_sums(*rows, dropout=dropout)
            loss = sums.loss / tokens
        gradients = tape.gradient(loss, self._variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    def _own_rows(self, source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return source[replica :: self._replicas], target[replica :: self._replicas]

    def _row_sums(
        self, source: tf.Tensor, target: tf.Tensor, *, dropout: Dropout | None
    ) -> TokenSums:
        return batch_sums(
            self._model,
            source,
            target,
            smoothing=self._label_smoothing,
            dropout=dropout,
            r_drop=self._r_drop,
        )

    def _dropout_seed(self, place: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.stack([self._seed, place * self._replicas + replica])


def _compiled(function: Callable[..., Any], signature: Sequence[Any]) -> Any:
    # One signature with free lengths: no batch traces a function again.
    return tf.function(function, input_signature=signature, autograph=False)
