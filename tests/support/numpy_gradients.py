"""Reverse-mode differentiation in NumPy and float64, for the operations of a Transformer.

Each operation uses the textbook derivative, and shares no code with the product. Tests compare the
product's hand-written gradients with these gradients.
"""

from __future__ import annotations

import numpy as np


class Value:
    """An array, and the values from which it was computed.

    Args:
      data: The array.
      parents: Pairs of a value and a function that converts the gradient of this value to a part of
        the gradient of that value.
    """

    __array_ufunc__ = None  # NumPy then uses the methods of `Value` even if its operand is first.

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
        """Sum along an axis, or over all axes, and keep the axes."""
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
    """Return the gradients of the sum of a value's elements with respect to other values."""
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
    """Sum a gradient over the axes along which its value was broadcast."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    axes = [i for i, (found, own) in enumerate(zip(gradient.shape, shape, strict=True))
            if found != own]  # fmt: skip
    return gradient.sum(tuple(axes), keepdims=True) if axes else gradient
