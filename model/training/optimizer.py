"""Adam, and the sum of the gradients of an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9  # section 5.3 of the paper


class Adam(tf.Module):
    """Adam (Kingma and Ba 2015) with the constants of section 5.3 of the paper.

    Create the optimizer in the strategy scope in which the variables were created.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        super().__init__()
        self._variables = list(variables)
        self.first_moments = [_zeros_like(variable) for variable in variables]
        self.second_moments = [_zeros_like(variable) for variable in variables]

    def apply(self, gradients: Sequence[tf.Tensor], *, rate: tf.Tensor, update: tf.Tensor) -> None:
        """Update the variables; call this in the replica context of every replica.

        Args:
          gradients: Gradients of all variables, summed over the replicas.
          rate: Learning rate, a float32 scalar.
          update: Number of this update, a float32 scalar; the first update is 1.
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


class Accumulator(tf.Module):
    """Sums the gradients of several batches; each replica sums the gradients of its own rows.

    Create the accumulator in the strategy scope in which the variables were created.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        super().__init__()
        # Each replica has its own values. Outside of a replica context, TensorFlow reads their sum.
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
        """Add the gradients of a batch; call this in a replica context."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=gradient)

    def drain(self) -> list[tf.Tensor]:
        """Return the sums and reset them to zero; call this in a replica context."""
        drained = []
        for total in self.sums:
            value = tf.raw_ops.ReadVariableOp(resource=total.handle, dtype=total.dtype)
            with tf.control_dependencies([value]):
                tf.raw_ops.AssignVariableOp(resource=total.handle, value=tf.zeros_like(value))
            drained.append(value)
        return drained


def _zeros_like(variable: Any) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape, tf.float32), trainable=False)
