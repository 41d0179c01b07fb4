"""Format sizes, times, prices and texts for the user."""

from __future__ import annotations

from tt.model.errors import counted
from tt.model.long_work import BYTES, Work

_LONG, _BEGIN = 400, 240  # characters: the longest uncut text, and the shown part of a cut text


def megabytes(size: int) -> str:
    """Format a number of bytes in MB, or in bytes if there are few.

    >>> megabytes(1_234_567), megabytes(1234), megabytes(30)
    ('1.2 MB', '0.001 MB', '30 bytes')
    """
    if size < 500:
        return counted(size, "byte")
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e6:.1g} MB"


def as_read(text: str) -> str:
    r"""Return a text in which control characters are escaped, except newlines and tabs.

    >>> print(as_read("\x1b[31mred"))
    \x1b[31mred
    """
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def begin_of(text: str) -> str | None:
    """Return the start and the length of a text that is too long for a list, otherwise None.

    >>> begin_of("a text"), begin_of("ab" * 1500)[-25:]
    (None, 'abab … (3,000 characters)')
    """
    if len(text) <= _LONG:
        return None
    return f"{text[:_BEGIN].rstrip()} … ({len(text):,} characters)"


def format_seconds(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if there are any.

    >>> format_seconds(192.4), format_seconds(3_661)
    ('3:12', '1:01:01')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def describe_work(work: Work, *, seconds: float) -> str:
    """Describe the progress of some work: the finished share, the rate and the time left.

    >>> describe_work(Work("checking digests", 3_000_000, BYTES, 1_000_000), seconds=4)
    'checking digests: 1.0 MB of 3.0 MB, 0.2 MB/s, 0:08 left'
    >>> describe_work(Work("scoring", 10, "sentences"), seconds=4)
    'scoring: 0 of 10 sentences'
    """
    done = min(work.done, work.total)
    rate = done / seconds if seconds > 0 else 0.0
    if work.unit == BYTES:
        parts = [f"{work.name}: {megabytes(done)} of {megabytes(work.total)}"]
        rate_shown = f"{megabytes(round(rate))}/s"
    else:
        parts = [f"{work.name}: {done:,} of {work.total:,} {work.unit}"]
        rate_shown = f"{rate:,.0f} {work.unit}/s" if rate >= 1 else f"{60 * rate:.2g} per minute"
    if rate:
        parts += [rate_shown, f"{format_seconds((work.total - done) / rate)} left"]
    return ", ".join(parts)


def format_price(price: float) -> str:
    """Format an amount of money.

    >>> format_price(10110.4), format_price(2.531), format_price(0.01214)
    ('10,110.40', '2.53', '0.01214')
    """
    return f"{price:,.2f}" if price >= 1 else f"{price:.4g}"


def describe_sentences(texts: int, distinct: int, remembered: int) -> str:
    """Return the numbers of sentences in a job, for the user.

    A sentence whose translation lost a span or a figure is translated twice.

    >>> describe_sentences(42, 44, 0)
    '42 in all texts, 44 translated (with second attempts)'
    >>> describe_sentences(5, 0, 4)
    '5 in all texts, 0 translated, 4 from the memory'
    """
    found = f"{texts:,} in all texts, {distinct:,} translated"
    found += f", {remembered:,} from the memory" if remembered else ""
    return found + (" (with second attempts)" if distinct + remembered > texts else "")
