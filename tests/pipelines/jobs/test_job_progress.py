"""The status line of a job."""

import pytest

from tt.pipelines.jobs.progress import Progress, ProgressWatch


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"seconds": 42.3}, "encoding: 0:42"),
        ({"total": 5000}, "encoding: 0 of 5,000 rows"),
        # The rate is 1,000 rows / 20 s = 50 rows/s, so the other 3,000 rows need 60 s.
        (
            {"total": 5000, "done": 2000, "earlier": 1000, "seconds": 20},
            "encoding: 2,000 of 5,000 rows (1,000 earlier), 50 rows/s, 1:00 left",
        ),
        # An earlier run finished all these rows, so there is no rate.
        (
            {"total": 120, "done": 36, "earlier": 36, "seconds": 9},
            "encoding: 36 of 120 rows (36 earlier)",
        ),
        # The rate is 2 rows / 16 s = 0.125 rows/s, so the other 8 rows need 64 s.
        (
            {"total": 10, "done": 2, "seconds": 16},
            "encoding: 2 of 10 rows, 0.125 rows/s, 1:04 left",
        ),
    ],
)
def test_describe_returns_the_status_line(values, line):
    assert Progress(phase="encoding", noun="rows", **values).describe() == line


def test_each_phase_has_its_own_start():
    class Watch(ProgressWatch):
        def find_phase(self):
            return Progress(phase=phase, done=done, total=9)

    watch, phase, done = Watch(), "one", 5
    assert (watch.measure(1.0).earlier, watch.measure(1.0).seconds) == (5, 0.0)
    phase = "two"
    assert watch.measure(3.0).seconds == 0.0
    phase, done = "one", 7
    later = watch.measure(4.0)
    assert (later.done, later.earlier, later.seconds) == (7, 5, 3.0)
