"""Reverse-mode differentiation in NumPy, float64: the few operations that a Transformer needs.

Each operation keeps the derivative that a school book has for it, and nothing else is known of
the product: the gradients that are written by hand there are held to these.
"""

from __future__ import annotations

import numpy as np


class Value:
    """An array, and what it was computed from.

    Args:
      data: The array.
      parents: Pairs of a value and what turns this one's gradient into a part of its own.
    """

    __array_ufunc__ = None  # so that an array on the left leaves the operation to this class

    def __init__(self, data, *parents):
        self.data = np.asarray(data, np.float64)
        self.parents = parents

    def __add__(self, other):
        other = as_value(other)
        return Value(self.data + other.data, (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other):
        other = as_value(other)
        return Value(
            self.data * other.data,
            (self, lambda g: g * other.data),
            (other, lambda g: g * self.data),
        )

    def __matmul__(self, other):
        return Value(
            self.data @ other.data,
            (self, lambda g: g @ other.data.swapaxes(-1, -2)),
            (other, lambda g: self.data.swapaxes(-1, -2) @ g),
        )

    def __pow__(self, exponent):
        return Value(
            self.data**exponent, (self, lambda g: g * exponent * self.data ** (exponent - 1))
        )

    def __sub__(self, other):
        return self + as_value(other) * -1

    def __truediv__(self, other):
        return self * as_value(other) ** -1

    def __getitem__(self, where):
        def scatter(g):
            whole = np.zeros_like(self.data)
            np.add.at(whole, where, g)
            return whole

        return Value(self.data[where], (self, scatter))

    def exp(self):
        result = np.exp(self.data)
        return Value(result, (self, lambda g: g * result))

    def log(self):
        return Value(np.log(self.data), (self, lambda g: g / self.data))

    def relu(self):
        return Value(np.maximum(self.data, 0), (self, lambda g: g * (self.data > 0)))

    def sum(self, axis=None):
        """Keeps its axes, so that the sum of all has as many as before."""
        total = self.data.sum(axis, keepdims=True)
        return Value(total, (self, lambda g: np.broadcast_to(g, self.data.shape)))

    def mean(self, axis):
        return self.sum(axis) / self.data.shape[axis]

    def reshape(self, *shape):
        return Value(self.data.reshape(shape), (self, lambda g: g.reshape(self.data.shape)))

    def transpose(self, *axes):
        back = np.argsort(axes)
        return Value(self.data.transpose(axes), (self, lambda g: g.transpose(back)))


def as_value(x):
    return x if isinstance(x, Value) else Value(x)


def gradients(result, variables):
    """Returns the gradients of the sum of a value's elements to other values."""
    order, seen, stack = [], set(), [(result, False)]
    while stack:
        value, is_done = stack.pop()
        if is_done:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack += [(parent, False) for parent, _ in value.parents]
    found = {id(value): np.zeros_like(value.data) for value in [*order, *variables]}
    found[id(result)] += 1
    for value in reversed(order):
        for parent, derivative in value.parents:
            found[id(parent)] += _summed_to(derivative(found[id(value)]), parent.data.shape)
    return [found[id(variable)] for variable in variables]


def _summed_to(gradient, shape):
    """Adds up a gradient along the axes that its value was broadcast along."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    axes = [i for i, (found, own) in enumerate(zip(gradient.shape, shape, strict=True))
            if found != own]  # fmt: skip
    return gradient.sum(tuple(axes), keepdims=True) if axes else gradient
