"""Compiled training functions for any strategy: from a batch to updated weights.

Axes: B rows of the global batch, S source positions, T target positions.

Every replica receives the global batch and selects its own rows. The gradients are divided by the
number of tokens that all replicas have together, so the update is exact even if the rows of the
replicas differ in length. Replicas exchange gradients once per update. Results stay on their device
until the trainer reads them, so the next step does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from tt.model.training.loss import MOST_LOGITS, TokenSums, batch_sums
from tt.model.training.optimizer import Accumulator, Adam
from tt.model.training.options import TrainingConfig
from tt.model.training.strategies import is_multi_worker
from tt.model.transformer.layers import Dropout
from tt.model.transformer.transformer import Transformer

# Packs of this size let the exchange of the first gradients overlap with the computation of the
# last ones.
_EXCHANGE = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=32 * 2**20)
_PAIR = (tf.TensorSpec([None, None], tf.int32),) * 2


class UpdateScalars(NamedTuple):
    """The scalars that an update depends on: NumPy values outside of the step, tensors inside."""

    place: Any  # int32, number of the batch in the run; seeds the dropout masks
    tokens: Any  # float32, real target tokens in all batches of the update
    rate: Any  # float32, learning rate
    update: Any  # float32, number of the update; the first update is 1
    stop: Any  # float32, 1 if this process has a request to stop, else 0


_SCALARS = UpdateScalars(tf.TensorSpec([], tf.int32), *[tf.TensorSpec([], tf.float32)] * 4)


class StepResult(NamedTuple):
    """The result of a batch, summed over all replicas."""

    sums: TokenSums  # sums over the real target tokens
    gradient_norm: float  # global norm before clipping; 0 if the batch was only accumulated
    stops: float  # number of replicas whose process has a request to stop


# The result of a step before it is read: float32 [6] tensors, each on its own device. Their sum is
# the result.
Unread = tuple[tf.Tensor, ...]


class TrainingStep:
    """The compiled functions that train a model batch by batch.

    All functions take a global batch: `source` is int32 [B, S], and `target` is int32 [B, T].

    Args:
      model: The model to train, created in the scope of the strategy.
      strategy: The strategy that distributes the training.
      training: Options of the training.
    """

    def __init__(
        self, model: Transformer, *, strategy: tf.distribute.Strategy, training: TrainingConfig
    ) -> None:
        self._model, self._strategy, self._training = model, strategy, training
        self._replicas: int = strategy.num_replicas_in_sync
        # 30 bits leave room in an int32 for the call numbers that `Dropout` adds.
        self._seed = int(np.random.default_rng(training.seed).integers(2**30))
        self._variables = [variable.value for variable in model.trainable_variables]
        self._is_sliced = self._needs_slices(training.batch_tokens)
        accumulates = training.effective_batch_size is not None
        with strategy.scope():
            self.adam = Adam(self._variables)
            self.accumulator = Accumulator(self._variables) if accumulates else None
        self._update = _compiled(self._update_on_batch, [*_PAIR, _SCALARS])
        self._accumulate = _compiled(self._accumulate_batch, [*_PAIR, _SCALARS])
        self._sums = _compiled(self._sums_of_batch, _PAIR)

    def update(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Update the weights with a batch and the accumulated gradients.

        Returns:
          The result, to be passed to `read`.
        """
        return cast(Unread, self._update(source, target, scalars))

    def accumulate(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Add the gradients of a batch to the next update.

        Returns:
          The result, to be passed to `read`.
        """
        return cast(Unread, self._accumulate(source, target, scalars))

    @staticmethod
    def read(result: Unread) -> StepResult:
        """Wait for the result of a step and return it."""
        *sums, norm, stops = np.sum([part.numpy() for part in result], axis=0).tolist()
        return StepResult(TokenSums(*sums), norm, stops)

    def sums(self, source: np.ndarray, target: np.ndarray) -> TokenSums:
        """Return the sums of a validation batch, without dropout and without an update."""
        return TokenSums(*self._sums(source, target).numpy().tolist())

    def find_fitting_tokens(
        self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars, *, least: int
    ) -> int | None:
        """Return a value of `batch_tokens` that fits into memory, for a batch that does not fit.

        The function updates the weights with fewer and fewer rows of the batch, so the caller must
        not use the weights afterwards. With several workers, it returns half the size of the batch
        without an update, because the other workers would not take part.

        Args:
          source: Source ids of the global batch, int32 [B, S].
          target: Target ids of the global batch, int32 [B, T].
          scalars: Scalars of the update.
          least: The smallest useful value.

        Returns:
          The value, or None if not even the smallest useful value fits.
        """
        longer: int = max(source.shape[1], target.shape[1])
        tokens = len(source) // self._replicas * longer // 2
        while tokens >= max(least, longer):
            if is_multi_worker(self._strategy):
                return tokens
            if self._is_sliced and not self._needs_slices(tokens):  # nor would the new run
                self._is_sliced = False
                self._update = _compiled(self._update_on_batch, [*_PAIR, _SCALARS])
            rows = self._replicas * (tokens // longer)
            try:
                self.read(self.update(source[:rows], target[:rows], scalars))
            except tf.errors.ResourceExhaustedError:
                tokens //= 2
            else:
                return tokens
        return None

    def _needs_slices(self, batch_tokens: int) -> bool:
        return batch_tokens * self._model.config.target_vocabulary_size > MOST_LOGITS

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
            if (most := self._training.clip_norm) is not None:
                factor = most / tf.maximum(norm, most)
                gradients = [gradient * factor for gradient in gradients]
            self.adam.apply(gradients, rate=scalars.rate, update=scalars.update)
            return tf.concat([told[:-1], [norm], told[-1:]], 0)

        # Every replica has the global result, so one is enough.
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
            # A process cannot read the results of other processes later, so sum them here.
            return self._sum_over_replicas([told])[0] if has_other_processes else told

        parts = self._run_apart(accumulate, source, target, scalars)
        return parts[:1] if has_other_processes else parts

    def _sums_of_batch(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        def sums(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            return tf.stack(self._row_sums(source, target, dropout=None))

        return self._strategy.reduce("SUM", self._on_replicas(sums, source, target), axis=None)

    def _run_apart(self, function: Callable[..., tf.Tensor], *args: Any) -> Unread:
        """Call a function on the replicas of this process; leave the results on their devices."""
        found = self._on_replicas(function, *args)
        return cast(Unread, self._strategy.experimental_local_results(found))

    def _on_replicas(self, function: Callable[..., tf.Tensor], *args: Any) -> Any:
        # Skip AutoGraph, as `autograph=False` does: no code here needs its conversion, which takes
        # seconds.
        plain = tf.autograph.experimental.do_not_convert(function)
        return self._strategy.run(plain, args=args)

    @staticmethod
    def _sum_over_replicas(values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sum values over the replicas of all processes; call this in a replica context."""
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
        """Return the gradients of this replica's share of the loss, and the sums over its rows.

        Args:
          source: Source ids of the global batch, int32 [B, S].
          target: Target ids of the global batch, int32 [B, T].
          tokens: Number of tokens that the loss is divided by.
          seed: Seed of dropout, int32 [2]; None disables dropout.
        """
        with tf.GradientTape() as tape:
            dropout = None if seed is None else Dropout(seed)
            sums = self._row_sums(source, target, dropout=dropout)
            loss = sums.loss / tokens
        gradients = tape.gradient(loss, self._variables)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    def _row_sums(
        self, source: tf.Tensor, target: tf.Tensor, *, dropout: Dropout | None
    ) -> TokenSums:
        """Return the sums over this replica's rows of a global batch."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return batch_sums(
            self._model,
            source[replica :: self._replicas],
            target[replica :: self._replicas],
            smoothing=self._training.label_smoothing,
            dropout=dropout,
            is_sliced=self._is_sliced,
            has_xla=self._training.xla,
        )

    def _dropout_seed(self, place: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.stack([self._seed, place * self._replicas + replica])


def _compiled(function: Callable[..., Any], signature: Sequence[Any]) -> Any:
    # The signature allows any lengths, so each function is traced only once.
    return tf.function(function, input_signature=signature, autograph=False)
