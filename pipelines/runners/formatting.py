"""Figures as a user reads them: sizes, times and prices."""

from __future__ import annotations


def megabytes(size: int) -> str:
    """Writes a number of bytes in MB.

    >>> megabytes(1_234_567), megabytes(1234), megabytes(0)
    ('1.2 MB', '0.001 MB', '0 MB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e6:.1g} MB"


def format_seconds(seconds: float) -> str:
    """Writes a time as minutes and seconds, and hours where there are some.

    >>> format_seconds(192.4), format_seconds(3_661)
    ('3:12', '1:01:01')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_price(price: float) -> str:
    """Writes an amount of money.

    >>> format_price(10110.4), format_price(2.531), format_price(0.01214)
    ('10,110.40', '2.53', '0.01214')
    """
    return f"{price:,.2f}" if price >= 1 else f"{price:.4g}"
