"""The compiled functions of training, under any strategy: a batch to an update of the weights.

Axes: B rows of the global batch, S source, T target. Every replica gets the whole batch and takes
its share of the rows, so a batch is divided by its true number of tokens, however uneven the shares
are. Replicas exchange gradients once an update, and what a step returns stays on its device until
it is read: nothing else waits for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from tt.model.training.loss import TokenSums, batch_sums
from tt.model.training.options import TrainingConfig
from tt.model.training.strategies import is_multi_worker
from tt.model.transformer.layers import Dropout
from tt.model.transformer.transformer import Transformer

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9  # section 5.3 of the paper
# Gradients travel in packs of this size: the first are under way while the last are computed.
_EXCHANGE = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=32 * 2**20)
_PAIR = (tf.TensorSpec([None, None], tf.int32),) * 2


class Adam(tf.Module):
    """Adam (Kingma and Ba 2015) with the constants of section 5.3.

    It is made under the same strategy's scope as the variables that it trains.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        super().__init__()
        self._variables = list(variables)
        self.first_moments = [_zeros_like(variable) for variable in variables]
        self.second_moments = [_zeros_like(variable) for variable in variables]

    def apply(self, gradients: Sequence[tf.Tensor], *, rate: tf.Tensor, update: tf.Tensor) -> None:
        """Updates the variables, in a replica's context; every replica does the same.

        The gradients are summed over the replicas; `rate` is the learning rate, `update` the number
        of this one, from 1, float32 scalars both.
        """
        for variable, first, second, gradient in zip(
            self._variables, self.first_moments, self.second_moments, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=BETA_1**update,
                beta2_power=BETA_2**update,
                lr=rate,
                beta1=BETA_1,
                beta2=BETA_2,
                epsilon=EPSILON,
                grad=gradient,
            )


class Average(tf.Module):
    """An exponential moving average of variables.

    It is made under the same strategy's scope as the variables, and begins with their values.
    """

    def __init__(self, variables: Sequence[tf.Variable], *, decay: float) -> None:
        super().__init__()
        self._variables, self._decay = list(variables), decay
        self.means = [_zeros_like(variable) for variable in variables]
        self.begin()

    def begin(self) -> None:
        """Takes the values that the variables have."""
        _copy(self._variables, self.means)

    def follow(self, update: tf.Tensor) -> None:
        """Takes in the variables after an update, in a replica's context; all do the same.

        `update` is the number of the update, from 1, a float32 scalar. Early values are forgotten
        sooner, as in Marian and in `tf.train.ExponentialMovingAverage`.
        """
        share = 1 - tf.minimum(self._decay, (1 + update) / (10 + update))
        for mean, variable in zip(self.means, self._variables, strict=True):
            before, value = (
                tf.raw_ops.ReadVariableOp(resource=each.handle, dtype=each.dtype)
                for each in (mean, variable)
            )
            tf.raw_ops.AssignVariableOp(
                resource=mean.handle, value=before + share * (value - before)
            )

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Gives the variables their means in a block, outside of a replica's context."""
        values = [np.array(variable.numpy()) for variable in self._variables]
        _copy(self.means, self._variables)
        try:
            yield
        finally:
            for value, variable in zip(values, self._variables, strict=True):
                variable.assign(value)


class Accumulator(tf.Module):
    """Adds up the gradients of several batches, each replica those of its own rows.

    It is made under the same strategy's scope as the variables.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        super().__init__()
        # Only their sum over the replicas has a meaning outside of these.
        self.sums = [
            tf.Variable(
                tf.zeros(variable.shape, tf.float32),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
            for variable in variables
        ]

    def add(self, gradients: Sequence[tf.Tensor]) -> None:
        """Adds a batch's gradients, in a replica's context."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=gradient)

    def drain(self) -> list[tf.Tensor]:
        """Returns the sums and sets them to zero, in a replica's context."""
        drained = []
        for total in self.sums:
            value = tf.raw_ops.ReadVariableOp(resource=total.handle, dtype=total.dtype)
            with tf.control_dependencies([value]):
                tf.raw_ops.AssignVariableOp(resource=total.handle, value=tf.zeros_like(value))
            drained.append(value)
        return drained


def _copy(sources: Sequence[tf.Variable], targets: Sequence[tf.Variable]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.assign(source.numpy())


def _zeros_like(variable: Any) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape, tf.float32), trainable=False)


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
    """A model with its optimizer, and the compiled functions that train it batch by batch.

    The model was made in the scope of the strategy. Batches have a source [B, S] and a target
    [B, T], int32.
    """

    def __init__(
        self, model: Transformer, *, strategy: tf.distribute.Strategy, training: TrainingConfig
    ) -> None:
        self._model, self._strategy, self._training = model, strategy, training
        self._replicas: int = strategy.num_replicas_in_sync
        # 30 bits leave room in an int32 for the places that `Dropout` adds.
        self._seed = int(np.random.default_rng(training.seed).integers(2**30))
        self._variables = [variable.value for variable in model.trainable_variables]
        accumulates, ema = training.effective_batch_size is not None, training.ema
        with strategy.scope():
            self.adam = Adam(self._variables)
            self.accumulator = Accumulator(self._variables) if accumulates else None
            self.average = Average(self._variables, decay=ema) if ema else None
        self._update = _compiled(self._update_on_batch, [*_PAIR, _SCALARS])
        self._accumulate = _compiled(self._accumulate_batch, [*_PAIR, _SCALARS])
        self._sums = _compiled(self._sums_of_batch, _PAIR)

    def update(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Update the weights by a batch and the accumulated gradients; see `read`."""
        return cast(Unread, self._update(source, target, scalars))

    def accumulate(self, source: np.ndarray, target: np.ndarray, scalars: UpdateScalars) -> Unread:
        """Add a batch's gradients to those of the next update; see `read`."""
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
            return tf.stack(self._row_sums(source, target, dropout=None))

        return self._strategy.reduce("SUM", self._on_replicas(sums, source, target), axis=None)

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
        """Return the gradients of this replica's loss over `tokens`, and its sums.

        Source and target are int32 [B, S] and [B, T], of all replicas; without seed no dropout.
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
        """Return the sums over this replica's rows of a batch."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return batch_sums(
            self._model,
            source[replica :: self._replicas],
            target[replica :: self._replicas],
            smoothing=self._training.label_smoothing,
            dropout=dropout,
            r_drop=self._training.r_drop,
        )

    def _dropout_seed(self, place: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.stack([self._seed, place * self._replicas + replica])


def _compiled(function: Callable[..., Any], signature: Sequence[Any]) -> Any:
    # One signature with free lengths: no batch traces a function again.
    return tf.function(function, input_signature=signature, autograph=False)
