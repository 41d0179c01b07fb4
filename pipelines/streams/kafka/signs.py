"""Signs of runs, beside the offsets of a group: one alone should work for it.

Two would translate everything twice. So each run leaves a sign, and renews it. Who finds that of
another that lives does not begin. Who begins after one that gave no sign of life has a higher term:
should that one have slept alone, it sees this before it commits, and ends.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from model.errors import UserError

BEAT_SECONDS = 5.0
_WAITED_BEATS = 2.4  # for a sign of life: one may have been just before
_LOOKS_A_BEAT = 5
_WORKS, _ENDED = "works", "ended"
_NOWHERE = "-"  # the place of processes that cannot be told from those of other machines

_living: set[str] = set()  # runs of this process


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sign:
    """What a run leaves beside the offsets that it commits.

    Attributes:
      run: Its name, which no other run has.
      start: When it began, in milliseconds since 1970.
      host: The machine's name, which containers may share.
      process: The process's id there.
      beat: How often it was renewed.
      term: 1 more than those of all runs of which it found signs.
      place: What tells the process's ids: boot of the machine, and container.
      born: When the process began there, in ticks: ids are used again.
      is_ended: Whether it said that it ended.
    """

    run: str
    start: int
    host: str
    process: int
    beat: int = 0
    term: int = 0
    place: str = _NOWHERE
    born: int = 0
    is_ended: bool = False

    @classmethod
    def of_this_process(cls, run: str, *, term: int) -> Sign:
        """Makes the sign of a run that begins in this process."""
        process = os.getpid()
        _living.add(run)
        return cls(
            run=run or "-",
            start=round(1000 * time.time()),
            host="".join(socket.gethostname().split()) or "-",
            process=process,
            term=term,
            place=_place(),
            born=_born(process) or 0,
        )

    @classmethod
    def parse(cls, text: str) -> Sign | None:
        """Reads a sign, also one of before there were terms; what other programs leave is none.

        >>> Sign.parse("tt 4f 1700000000000 host 12 3 2 a8 777 works").term
        2
        """
        words = text.split()
        match words:
            case ["tt", run, start, host, process, beat]:
                term, place, born, state = "0", _NOWHERE, "0", _WORKS
            case ["tt", run, start, host, process, beat, term, place, born, state]:
                pass
            case _:
                return None
        numbers = (start, process, beat, term, born)
        if not all(each.isdecimal() for each in numbers) or state not in (_WORKS, _ENDED):
            return None
        return cls(
            run=run, start=int(start), host=host, process=int(process), beat=int(beat),
            term=int(term), place=place, born=int(born), is_ended=state == _ENDED,
        )  # fmt: skip

    def __str__(self) -> str:
        state = _ENDED if self.is_ended else _WORKS
        return (
            f"tt {self.run} {self.start} {self.host} {self.process} {self.beat} {self.term} "
            f"{self.place} {self.born} {state}"
        )

    @property
    def is_over(self) -> bool:
        """Whether its run has ended: it said so, or its process is known to be gone."""
        if self.is_ended:
            return True
        if self.place == _NOWHERE or self.place != _place():
            return False
        if self.process == os.getpid() and self.born == _born(self.process):
            return self.run not in _living
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is another user's
        born = _born(self.process)
        return born is not None and born != self.born

    def outranks(self, other: Sign) -> bool:
        """Whether the other's run is to end: this one took over, or both began and it was first."""
        if self.term != other.term:
            return self.term > other.term
        return not self.is_ended and (self.start, self.run) < (other.start, other.run)

    def describe(self) -> str:
        """Says which run it is."""
        return f"process {self.process} of {self.host}"


def forget_living(run: str) -> None:
    """Takes note that a run of this process has ended."""
    _living.discard(run)


@functools.cache
def _place() -> str:
    """Returns what processes share whose ids can be compared.

    The name of a machine is not enough: containers may have one name, and each a first process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        container = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 -- a link of the kernel's
    except OSError:
        return _NOWHERE
    return hashlib.sha256(f"{boot} {container}".encode()).hexdigest()[:16]


def _born(process: int) -> int | None:
    """Returns when a process began, in ticks since the machine did; None if that is not told."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def check_alone(
    look: Callable[[], Mapping[int, str]],
    *,
    group: str,
    report: Callable[[str], object],
    beat_seconds: float = BEAT_SECONDS,
) -> int:
    """Checks that no other run works for a group; waits for a sign of life if one may.

    Args:
      look: Returns what stands beside the committed offsets, by partition.
      group: The group.
      report: Takes the line that says that it waits.
      beat_seconds: Seconds between two signs of life.

    Returns:
      The term of a run that begins now.

    Raises:
      UserError: Another run does.
    """
    before = look()
    signs = [sign for text in before.values() if (sign := Sign.parse(text))]
    term = 1 + max((sign.term for sign in signs), default=0)
    waited_for = [sign for sign in signs if not sign.is_over]
    if not waited_for:
        return term
    last = max(waited_for, key=lambda sign: sign.start)
    wait = _WAITED_BEATS * beat_seconds
    report(
        f"The last tt of group {group} ({last.describe()}) did not say that it ended: waiting up "
        f"to {wait:.0f} s to see whether it works"
    )
    end = time.monotonic() + wait
    is_last = False
    while not is_last:
        time.sleep(beat_seconds / _LOOKS_A_BEAT)
        is_last = time.monotonic() >= end  # before the look: this process may be suspended
        for partition, text in look().items():
            found = Sign.parse(text)
            if found is None or text == before.get(partition):
                continue
            if not found.is_ended:
                raise explain_other(found, group=group)
            term = max(term, found.term + 1)
    return term


def explain_other(sign: Sign, *, group: str) -> UserError:
    """Returns what to tell of another run that was first."""
    return UserError(
        f"another tt works as group {group} ({sign.describe()}), and everything would be "
        "translated twice: end that one, or name another `group`"
    )


def explain_successor(sign: Sign, *, group: str) -> UserError:
    """Returns what to tell of another run that took over from this one."""
    return UserError(
        f"another tt has taken over the group {group} ({sign.describe()}), as this one gave no "
        "sign of life for a while: this one ends, and at most what it had in hand comes twice"
    )
