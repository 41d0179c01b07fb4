"""Scorers in other processes: the order of their scores, crashes, and wrong output."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys

import pytest
from documents import ROOT

from tt.model.errors import UserError
from tt.pipelines.reports.scorer import MOST_RESTARTS, ScorerRow, score_rows

COUNT = 12


@pytest.fixture
def scorer(tmp_path):
    """Return a function that writes a scorer from its statements, and returns its command.

    The scorer counts its starts in `starts`. The statements see the number of this start, the
    lines of stdin as an iterator of `rows`, and `put`, which prints a score at once.
    """

    def write(statements):
        path = tmp_path / "score.py"
        path.write_text(
            "import json, os, pathlib, sys\n"
            f"starts = pathlib.Path({str(tmp_path / 'starts')!r})\n"
            "start = len(starts.read_text()) if starts.exists() else 0\n"
            "starts.write_text('x' * (start + 1))\n"
            "rows = map(json.loads, sys.stdin)\n"
            "def put(score):\n"
            "    print(json.dumps({'score': score}), flush=True)\n"
            "def length(row):\n"
            "    return len(row['translation'])\n" + statements
        )
        return shlex.join([sys.executable, str(path)])

    return write


@pytest.fixture
def starts(tmp_path):
    """Return a function that counts the starts of the scorer."""
    return lambda: len((tmp_path / "starts").read_text())


def rows_of(count=COUNT, *, size=1):
    """Return rows whose translations have the lengths size, 2 * size, ..."""
    texts = ["é" * size * (row + 1) for row in range(count)]
    return [ScorerRow(f"row {i} of a.de", {"translation": t}) for i, t in enumerate(texts, 1)]


LENGTHS = [float(row + 1) for row in range(COUNT)]
ONE_BY_ONE = "for row in rows: put(length(row))\n"


@pytest.mark.parametrize(
    "statements",
    [ONE_BY_ONE, "for row in list(rows): put(length(row))\n"],
    ids=["one by one", "after the whole input"],
)
def test_scores_have_the_order_of_the_rows(scorer, starts, statements):
    assert score_rows(scorer(statements), rows_of()) == (LENGTHS, 0)
    assert starts() == 1


def test_scorer_receives_the_known_texts_as_json_lines(scorer, tmp_path):
    command = scorer(
        f"with open({str(tmp_path / 'seen')!r}, 'wb') as seen:\n"
        "    for line in sys.stdin.buffer:\n"
        "        seen.write(line)\n"
        "        put(1)\n"
    )
    texts = [
        {"translation": "line\nbreak\u2028\r", "source": '\U0001f600 "quoted"', "reference": ""},
        {"translation": "中文"},
    ]
    score_rows(command, [ScorerRow("a row", each) for each in texts])
    assert [
        json.loads(line) for line in (tmp_path / "seen").read_bytes().split(b"\n")[:-1]
    ] == texts


def test_large_input_and_output_do_not_block(scorer):
    """Both pipes and stderr take more than the 64 KiB that fit into a pipe."""
    wordy = "for row in rows:\n    put(length(row))\n    print('x' * 10_000, file=sys.stderr)\n"
    rows = rows_of(300, size=500)
    assert score_rows(scorer(wordy), rows).scores == [len(r.texts["translation"]) for r in rows]
    first_output = "for _ in range(20_000): put(0)\nfor row in rows: pass\n"
    assert score_rows(scorer(first_output), rows_of(20_000, size=0)).scores == [0.0] * 20_000


CRASH_AT_5 = """
for row in rows:
    if length(row) == 5 and start < {}:
        print('{{"sco', end='', flush=True)  # an incomplete line
        print('CUDA error\\n  out of memory\\n', file=sys.stderr)
        os._exit(3)
    put(length(row))
"""


def test_crashed_scorer_continues_with_the_first_row_without_a_score(scorer, starts):
    for crashes in (1, MOST_RESTARTS):
        starts_before = 0 if crashes == 1 else starts()
        command = scorer(CRASH_AT_5.format(starts_before + crashes))
        assert score_rows(command, rows_of()) == (LENGTHS, crashes)
        assert starts() == starts_before + crashes + 1


def test_only_crashes_without_a_new_score_count(scorer, starts):
    command = scorer("put(length(next(rows)))\nos.abort()\n")
    assert score_rows(command, rows_of()) == (LENGTHS, COUNT - 1), "it dies after each score"
    assert starts() == COUNT


def test_scorer_that_crashes_again_and_again_is_an_error(scorer, starts):
    with pytest.raises(UserError) as found:
        score_rows(scorer(CRASH_AT_5.format(99)), rows_of())
    assert str(found.value) == (
        f"the scorer {sys.executable} crashed 4 times before its score for row 5 of a.de, with "
        "exit code 3 (out of memory). Fix the scorer"
    )
    assert starts() == MOST_RESTARTS + 1
    with pytest.raises(UserError, match=r"with signal 9 \(nothing on stderr\)"):
        score_rows(scorer("os.kill(os.getpid(), 9)\n"), rows_of())
    with pytest.raises(UserError, match=r"for row 1 .* exit code 1 \(ModuleNotFoundError: No mod"):
        score_rows(scorer("import no_such_module\n"), rows_of())


NOT_FINITE = "is not finite, or too large"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (ONE_BY_ONE + "put(0)\n", 'printed more than 12 scores: {"score": 0}. Let it print'),
        ("put(1)\nput(2)\n", "ended after 2 of 12 scores; the next is for row 3 of a.de. Let it"),
        ("", "ended after 0 of 12 scores; the next is for row 1 of a.de. Let it print"),
        ("print('\\x1b[1m' + 'x' * 99)\n", f"printed \\x1b[1m{'x' * 76} instead of a score for"),
        ("print(0.5)\n", "printed 0.5 instead of a score for row 1 of a.de."),
        ("put('0.5')\n", 'printed {"score": "0.5"} instead of a score'),
        ("print('[' * 99_999)\n", f"printed {'[' * 80} instead of a score"),
        (
            "sys.stdout.buffer.write(b'\\xff\\n')\n",
            "printed \N{REPLACEMENT CHARACTER} instead of a",
        ),
        (
            "put(1)\nput(float('nan'))\n",
            f'the score for row 2 of a.de {NOT_FINITE}: {{"score": NaN}}',
        ),
        ("put(1e308)\n", f'the score for row 1 of a.de {NOT_FINITE}: {{"score": 1e+308'),
    ],
)
def test_wrong_output_is_an_error_and_no_crash(scorer, starts, statements, message):
    with pytest.raises(UserError) as found:
        score_rows(scorer(statements), rows_of())
    assert message in str(found.value)
    assert starts() == 1


def test_complete_output_counts_whatever_follows(scorer):
    last = ONE_BY_ONE.replace("put(length(row))", "print(end='{\"score\": 4}')")
    assert score_rows(scorer(last), rows_of(1)).scores == [4.0], "the last line may have no end"
    assert score_rows(scorer(ONE_BY_ONE + "os._exit(1)\n"), rows_of()) == (LENGTHS, 0)
    integers = score_rows(scorer("for row in rows: put(-3)\n"), rows_of(2)).scores
    assert integers == [-3.0, -3.0]
    assert all(math.isfinite(score) for score in integers)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-scorer --fast", "the scorer no-such-scorer cannot be started: No such file or"),
        ("env/python 'score.py", "`scorer` is not a command (No closing quotation). Received: env"),
        (" ", "`scorer` is empty. Choose a command such as"),
    ],
)
def test_commands_that_cannot_start_are_errors(command, message):
    with pytest.raises(UserError) as found:
        score_rows(command, rows_of())
    assert message in str(found.value)


COMET = """
def download_model(name):
    print("downloading", name)
    return f"/models/{name}"


def load_from_checkpoint(path):
    assert path == "/models/Unbabel/wmt22-cometkiwi-da"
    return Model()


class Model:
    def predict(self, data, batch_size, gpus):
        print("predicting")
        scores = [len(row["src"]) + len(row["mt"]) / 1000 for row in data]
        return type("Prediction", (), {"scores": scores})
"""


def test_script_in_the_documentation_follows_the_protocol(tmp_path, monkeypatch):
    """A stand-in replaces COMET, because its model is not available."""
    document = (ROOT / "docs/how-to/evaluate.md").read_text("utf-8")
    [text] = re.findall(r"cat > comet_score.py <<'END'\n(.*?\n)END\n", document, re.DOTALL)
    (tmp_path / "comet_score.py").write_text(text)
    (tmp_path / "comet.py").write_text(COMET)
    monkeypatch.chdir(tmp_path)
    texts = {"source": "ein Wort", "reference": "ein"}
    rows = [ScorerRow("a row", texts | {"translation": "x" * (i % 9 + 1)}) for i in range(1200)]
    expected = [8 + (row % 9 + 1) / 1000 for row in range(1200)]
    assert score_rows(shlex.join([sys.executable, "comet_score.py"]), rows) == (expected, 0)
