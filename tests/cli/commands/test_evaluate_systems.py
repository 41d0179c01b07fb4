"""`tt evaluate`: a second system, a scorer, scores by length, `--json` and `--fail-below`."""

from __future__ import annotations

import json
import shlex
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from fakes import reverse
from translation_jobs import translate, write

from tt.model.text.scores import bleu, chrf, compare_systems
from tt.pipelines.reports.lengths import group_by_length

REFERENCE = [f"the cat number {i} sat on a mat in the garden" for i in range(12)]
SYSTEM = [text.replace("sat on", "was on") if i % 3 else text for i, text in enumerate(REFERENCE)]
BASELINE = [text.replace("garden", "house") for text in REFERENCE]
SOURCE = [" ".join(["Wort"] * (5 * i + 1)) for i in range(12)]  # 1, 6, 11, ... 56 words

# The score of a row is the number of letters in its texts that begin with a lower-case letter.
SCORER = """
import json, os, pathlib, sys
crashed = pathlib.Path("crashed")
for line in sys.stdin:
    row = json.loads(line)
    if row.get("source", "").count(" ") == 20 and not crashed.exists():
        crashed.touch()
        sys.exit("out of memory")
    print(json.dumps({"score": sum(len(row.get(key, "")) for key in KEYS)}), flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    for name, texts in (("ref", REFERENCE), ("a", SYSTEM), ("b", BASELINE), ("src", SOURCE)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    table = {"translation": SYSTEM, "other": BASELINE, "human": REFERENCE, "text": SOURCE}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    pq.write_table(pa.table({"translation": BASELINE}), tmp_path / "b.parquet")
    return tmp_path


def results(capsys, *arguments):
    """Run `tt evaluate --json`, and return its object."""
    assert run("evaluate", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def write_scorer(folder, *keys):
    """Write a scorer that counts the characters of some texts, and return its command."""
    (folder / "score.py").write_text(f"KEYS = {keys!r}\n{SCORER}")
    return shlex.join([sys.executable, "score.py"])


TEXT = ("a.txt", "--reference", "ref.txt")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((*TEXT, "--against", "b.txt"), ["a.txt", "b.txt"]),
        ((*TEXT, "--against", "t.parquet", "--against-column", "other"), ["a.txt", "t.parquet"]),
        (("t.parquet", "--reference-column", "human", "--against-column", "other"),
         ["translation", "other"]),
        (("t.parquet", "--reference-column", "human", "--against", "t.parquet",
          "--against-column", "other"), ["translation", "other"]),
    ],
    ids=["texts", "column of a table", "columns of one table", "the table again"],
)  # fmt: skip
def test_second_system_can_be_any_input(folder, capsys, arguments, names):
    found = results(capsys, *arguments)
    assert [found["translations"], found["against"]] == names
    assert found["rows"] == 12
    expected = compare_systems(SYSTEM, BASELINE, [REFERENCE])
    assert found["paired_test"] == {
        each.metric: {
            "p_value": each.p_value,
            "translations": each.system._asdict(),
            "against": each.baseline._asdict(),
            "signature": each.signature,
        }
        for each in expected
    }
    scores = {name: each["score"] for name, each in found["scores"].items()}
    assert scores == {"BLEU": bleu(SYSTEM, REFERENCE).value, "chrF2": chrf(SYSTEM, REFERENCE).value}


def test_options_of_the_paired_test_have_an_effect(folder, capsys):
    flags = ("--paired-test", "randomization", "--samples", "50", "--seed", "3", "--lowercase")
    found = results(capsys, *TEXT, "--against", "b.txt", "--tokenize", "char", *flags)
    how = {"test": "randomization", "samples": 50, "seed": 3, "lowercase": True}
    for each in compare_systems(SYSTEM, BASELINE, [REFERENCE], tokenize="char", **how):
        assert found["paired_test"][each.metric]["p_value"] == each.p_value
        assert found["paired_test"][each.metric]["signature"] == each.signature
        assert "ar:50|seed:3|case:lc" in each.signature


def test_results_without_json_are_tables(folder, capsys):
    scorer = write_scorer(folder, "translation")
    flags = ("--against", "b.txt", "--source", "src.txt", "--scorer", scorer)
    assert run("evaluate", *TEXT, *flags) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("BLEU|nrefs:1|")
    assert lines[1].startswith("chrF2|nrefs:1|")
    expected = compare_systems(SYSTEM, BASELINE, [REFERENCE])
    rows = [line.split() for line in lines if line.startswith(("BLEU ", "chrF2 "))]
    assert [row[:4] for row in rows] == [
        [each.metric, name, f"{estimate.score:.2f}", f"{estimate.mean:.2f}"]
        for each in expected
        for name, estimate in (("b.txt", each.baseline), ("a.txt", each.system))
    ]
    assert [row[-1] for row in rows if row[1] == "a.txt"] == [f"{e.p_value:.4f}" for e in expected]
    assert f"BLEU|{expected[0].signature}" in lines
    mean = sum(map(len, SYSTEM)) / 12
    assert ["a.txt", f"{mean:.4f}"] in [line.split() for line in lines]
    header = "words in the source rows BLEU chrF2 scorer BLEU of b.txt chrF2 of b.txt scorer of"
    assert any(" ".join(line.split()).startswith(header) for line in lines)
    spans = [line.split("  ")[0] for line in lines if " or more" in line or " to " in line[:8]]
    assert spans == ["0 to 10", "11 to 20", "21 to 30", "31 to 50", "51 or more"]
    assert printed.err == "tt: the scorer crashed, and was restarted 1 time\n"


@pytest.mark.parametrize(
    "flags",
    [("--source", "src.txt"), ("--source", "t.parquet", "--source-column", "text")],
    ids=str,
)
def test_scores_by_length_are_those_of_the_rows(folder, capsys, flags):
    found = results(capsys, *TEXT, *flags, "--against", "b.txt")
    assert found["length_unit"] == "words"
    spans = [(each["least"], each["most"], each["rows"]) for each in found["lengths"]]
    assert spans == [(0, 10, 2), (11, 20, 2), (21, 30, 2), (31, 50, 4), (51, None, 2)]
    first = 0
    for group in found["lengths"]:
        part = slice(first, first := first + group["rows"])
        for name, texts in (("translations", SYSTEM), ("against", BASELINE)):
            assert group[name] == {
                "BLEU": bleu(texts[part], REFERENCE[part]).value,
                "chrF2": chrf(texts[part], REFERENCE[part]).value,
            }
    assert found == results(capsys, "t.parquet", "--reference", "ref.txt", "--against", "b.txt",
                            "--source-column", "text") | {"translations": "a.txt"}  # fmt: skip


def test_texts_without_spaces_are_grouped_by_characters():
    unit, groups = group_by_length(["中文。" * i for i in (1, 7, 33, 34)] + ["한국어 " * 30])
    assert unit == "characters"
    assert [(each.least, each.most, each.rows) for each in groups] == [
        (0, 20, [0]), (21, 40, [1]), (61, 100, [2]), (101, None, [3, 4])
    ]  # fmt: skip
    assert group_by_length(["한국어 단어"])[0] == "words"
    assert group_by_length([]) == ("words", [])


def test_translated_folders_can_be_compared(folder, capsys):
    write(folder / "in.parquet", {"text": REFERENCE, "back": [reverse(text) for text in REFERENCE]})
    translate(folder / "in.parquet", folder / "out", text_columns=("text",), unit_rows=5)
    flags = ("--reference-column", "back", "--source-column", "text", "--against", "b.txt")
    found = results(capsys, "out", *flags)
    assert (found["translations"], found["against"], found["rows"]) == ("out", "b.txt", 12)
    assert found["scores"]["BLEU"]["score"] == pytest.approx(100)
    assert found["paired_test"]["BLEU"]["against"]["score"] < 10
    assert [(each["least"], each["rows"]) for each in found["lengths"]] == [(11, 12)]


@pytest.mark.parametrize("keys", [("translation",), ("source", "translation"), ("reference",)])
def test_scorer_scores_both_systems_and_restarts(folder, capsys, keys):
    flags = ("--against", "b.txt", "--source", "src.txt", "--scorer", write_scorer(folder, *keys))
    found = results(capsys, *TEXT, "--reference", "src.txt", *flags)
    assert (folder / "crashed").exists()
    texts = {"source": SOURCE, "reference": REFERENCE}
    for name, system in (("translations", SYSTEM), ("against", BASELINE)):
        seen = {**texts, "translation": system}
        rows = [sum(len(seen[key][row]) for key in keys) for row in range(12)]
        assert found["scorer"][name] == pytest.approx(sum(rows) / 12)
        assert found["lengths"][0][name]["scorer"] == pytest.approx(sum(rows[:2]) / 2)
    assert (found["scorer"]["rows"], found["scorer"]["restarts"]) == (12, 1)


def test_scorer_needs_no_references(folder, capsys):
    scorer = write_scorer(folder, "reference", "translation")
    found = results(capsys, "a.txt", "--scorer", scorer, "--against", "b.txt")
    assert (found["scores"], found["paired_test"], found["lengths"]) == ({}, {}, [])
    assert found["scorer"]["translations"] == pytest.approx(sum(map(len, SYSTEM)) / 12)
    assert found["scorer"]["against"] == pytest.approx(sum(map(len, BASELINE)) / 12)
    assert run("evaluate", "a.txt", "--scorer", scorer, "--source", "src.txt") == 0
    assert "BLEU" not in capsys.readouterr().out


def test_null_texts_of_a_second_system_and_of_sources_count_as_empty(folder, capsys):
    pq.write_table(pa.table({"translation": [None, *BASELINE[1:]]}), folder / "null.parquet")
    pq.write_table(pa.table({"text": [None, *SOURCE[1:]]}), folder / "src.parquet")
    flags = ("--against", "null.parquet", "--source", "src.parquet", "--source-column", "text")
    assert run("evaluate", *TEXT, *flags, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == "tt: 1 of 12 translations in null.parquet is null and counts as empty\n"
    found = json.loads(printed.out)
    expected = bleu(["", *BASELINE[1:]], REFERENCE).value
    assert found["paired_test"]["BLEU"]["against"]["score"] == expected
    assert found["lengths"][0]["rows"] == 2


def test_equal_systems_cause_a_warning(folder, capsys):
    assert run("evaluate", *TEXT, "--against", "a.txt") == 0
    message = "tt: warning: the two systems are equal, so the p-values mean nothing\n"
    assert capsys.readouterr().err == message


def test_fail_below_sets_the_exit_code_and_prints_the_results(folder, capsys):
    value = bleu(SYSTEM, REFERENCE).value
    assert 10 < value < 90
    assert run("evaluate", *TEXT, "--fail-below", value) == 0
    passed = capsys.readouterr()
    assert passed.err == ""
    assert run("evaluate", *TEXT, "--fail-below", value + 1e-6) == 1
    failed = capsys.readouterr()
    assert failed.out == passed.out
    assert failed.err == f"tt: BLEU is {value:.4f}, which is below --fail-below {value + 1e-6:g}\n"
    (folder / "tt.yaml").write_text("fail_below: 90\njson: yes\n")
    assert run("evaluate", *TEXT, "--config", "tt.yaml") == 1
    assert json.loads(capsys.readouterr().out)["scores"]["BLEU"]["score"] == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TEXT, "--fail-below", "101"), "--fail-below must be from 0 to 100. Received: 101"),
        (("a.txt", "--scorer", "x", "--fail-below", "1"), "--fail-below needs references. Choose"),
        ((*TEXT, "--seed", "1"), "--seed needs a second system. Choose it with --against"),
        ((*TEXT, "--against", "b.txt", "--paired-test", "t"), "--paired-test must be one of"),
        ((*TEXT, "--against", "b.txt", "--samples", "0"), "--samples must be at least 1. Receiv"),
        ((*TEXT, "--against", "no.txt"), "no.txt cannot be read: No such file or directory."),
        ((*TEXT, "--against", "one.txt"), "Received: 12 translations in a.txt and 1 translation in "
         "one.txt. Choose files that belong together"),
        ((*TEXT, "--source", "t.parquet"), "t.parquet is Parquet. Choose the column of its sources "
         "with --source-column"),
        ((*TEXT, "--source-column", "text"), "--source-column is only for Parquet, but a.txt is"),
        ((*TEXT, "--against", "t.parquet", "--against-column", "x"), "Choose one of translation, "
         "other, human, text with --against-column"),
        ((*TEXT, "--scorer", "no-such-scorer"), "the scorer no-such-scorer cannot be started: No "
         "such file or directory. Check the command in --scorer"),
        ((*TEXT, "--scorer", "'"), "--scorer is not a command (No closing quotation)."),
        ((*TEXT, "--against", ""), "--against is empty. Choose a file"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_one_line(folder, capsys, arguments, message):
    (folder / "one.txt").write_text("one\n")
    assert run("evaluate", *arguments) == 2
    assert message in last_error(capsys)
