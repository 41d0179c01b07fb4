"""The factor on the loss of training in float16, which follows what that type can hold."""

from __future__ import annotations

import tensorflow as tf

# Of the sum of the loss over a batch's tokens: as 2^15 times its mean over 32.
START = 2.0**10
LEAST, MOST = 2.0**-6, 2.0**24
GROWTH_INTERVAL = 2000  # updates without an overflow


class LossScale(tf.Module):
    """A factor that small gradients survive float16 by (Micikevicius et al. 2018, section 3.2).

    It is halved where a gradient overflows, and that update is left out; after many without an
    overflow it is doubled. It is a power of two, so that no digit is lost. Where gradients are not
    finite under the least of it, the factor is not to blame.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(START, trainable=False)  # the factor of the next batch
        self.good_updates = tf.Variable(0.0, trainable=False)  # updates since it changed
        self.skipped = tf.Variable(0.0, trainable=False)  # updates that were left out, in all

    def adapt(self, is_finite: tf.Tensor) -> tf.Tensor:
        """Notes whether an update's gradients are finite, in a replica's context, on each alike.

        Returns float32, a scalar: 1 where the update was left out for an overflow, 0 otherwise.
        """
        scale, good = _read(self.scale), _read(self.good_updates) + 1
        is_overflow = ~is_finite & (scale > LEAST)
        grows = is_finite & (good >= GROWTH_INTERVAL)
        halved, doubled = tf.maximum(scale / 2, LEAST), tf.minimum(scale * 2, MOST)
        _write(self.scale, tf.where(is_overflow, halved, tf.where(grows, doubled, scale)))
        _write(self.good_updates, tf.where(is_overflow | grows, 0.0, good))
        is_skipped = tf.cast(is_overflow, tf.float32)
        _write(self.skipped, _read(self.skipped) + is_skipped)
        return is_skipped


def _read(variable: tf.Variable) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _write(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
