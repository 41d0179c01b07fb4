"""Adam and the learning rate, as functions of the number of the update.

Keras's optimizer keeps that number and reduces gradients over replicas on its own terms; here the
training step does both, and clips and accumulates in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9  # section 5.3 of the paper


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate of each update: up in a line, then down or level."""

    peak: float  # at the end of the warm-up
    warmup_steps: int  # updates until then
    kind: str = "inverse-sqrt"  # equation 3 of the paper; or "constant"

    def rate(self, update: int) -> float:
        """Returns the learning rate of an update; the first is 1."""
        ratio = update / self.warmup_steps
        after = ratio**-0.5 if self.kind == "inverse-sqrt" else 1.0
        return self.peak * min(ratio, after)


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
