"""The command `tt preprocess`: every line of messy corpora is accounted for, and reruns agree."""

import gzip
import json

import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from corpora import ENGLISH, GERMAN, digest, rejected, texts

GOOD = list(zip(ENGLISH, GERMAN, strict=True))
HELD_OUT, EXCLUDED, TRAIN = GOOD[-5:], GOOD[-6], GOOD[:150]
FRENCH = "Les deux hommes sont dehors près des buissons et ils parlent avec les enfants. " * 20
# Each line has the first of its reasons, in the order of the documentation.
LINES = [
    (b"source\ttarget", "header"),
    (b"only \xff one column &amp;", "malformed"),
    (b"caf\xe9\t", "invalid_utf8"),
    ("⟦3⟧ a text\t".encode(), "stray_placeholder"),
    (b"\t" + b"lang " * 2000, "empty_source"),
    (b"12 34\t", "empty_target"),
    (b"12 34\t12 34", "identical"),
    ("Das GerÃ¤t\t12 34".encode(), "too_few_letters"),
    ("Das GerÃ¤t ist neu und gar nicht alt.\tEin Satz.".encode(), "mojibake"),
    (f"{FRENCH} &amp; il parle.\t{GERMAN[0]}".encode(), "wrong_language_source"),
    (f"{HELD_OUT[2][0]}\t{GERMAN[0] * 20}".encode(), "too_long"),
    *[("\t".join(HELD_OUT[0]).encode(), "held_out_pair")] * 2,
    (f"{HELD_OUT[1][0]}\tDas ist ein ganz anderer Satz.".encode(), "held_out_source"),
    ("\t".join(EXCLUDED).encode(), "held_out_source"),
    *[("\t".join(pair).encode(), None) for pair in TRAIN],
    (b"long " * 2000 + b"\tkurz", "too_many_characters"),
    ("\t".join(TRAIN[7]).encode(), "duplicate_pair"),
]
WEB = [*GOOD[150:250], *TRAIN[:10]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two corpora, a validation corpus and an excluded text."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "messy.tsv").write_bytes(b"".join(line + b"\n" for line, _ in LINES))
    for name, pairs in (("web", WEB), ("val", HELD_OUT)):
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    (folder / "test.en.gz").write_bytes(gzip.compress(f"{EXCLUDED[0]}\n".encode()))
    assert run(*command(folder, "out")) == 0
    return folder


def command(folder, output, *flags):
    return (
        "preprocess", f"messy={folder}/messy.tsv", f"web={folder}/web.tsv", "--weight", "web=0.5",
        "--validation", f"{folder}/val.tsv", "--exclude", f"{folder}/test.en.gz",
        "--source-language", "en", "--target-language", "de", "--vocabulary-type", "char",
        "--output", folder / output, *flags,
    )  # fmt: skip


def test_every_line_is_kept_or_rejected_with_its_first_reason(folder):
    found = {(row["corpus"], row["line"]): row for row in rejected(folder / "out")}
    reasons = {line: row["reason"] for (name, line), row in found.items() if name == "messy"}
    assert reasons == {i: reason for i, (_, reason) in enumerate(LINES, 1) if reason}
    web = [row for (name, _), row in found.items() if name == "web"]
    assert {row["reason"] for row in web} == {"not_sampled", "duplicate_pair"}
    manifest = json.loads((folder / "out/dataset.json").read_text())
    counts = [(each["read"], each["kept"]) for each in manifest["sources"]]
    assert counts == [(len(LINES), len(TRAIN)), (110, 110 - len(web)), (5, 5)]
    assert 10 < len(web) < 100
    assert sum(manifest["sources"][0]["rejected"].values()) == len(reasons)
    assert manifest["sources"][0]["decoded"] == 0, "entities of rejected lines do not count"


def test_rejected_lines_have_their_texts_and_their_places(folder):
    found = rejected(folder / "out")
    rows = {row["line"]: row for row in found if row["corpus"] == "messy"}
    assert [*rows[1]] == [
        "reason", "corpus", "file", "line", "source", "target", "survivor_corpus",
        "survivor_file", "survivor_line",
    ]  # fmt: skip
    assert {row["file"] for row in rows.values()} == {f"{folder}/messy.tsv"}
    assert (rows[2]["source"], rows[3]["source"]) == ("only \ufffd one column &amp;", "caf\ufffd")
    assert (rows[7]["source"], rows[7]["target"]) == ("12 34", "12 34")
    duplicate = rows[len(LINES)]
    place = (duplicate["survivor_corpus"], duplicate["survivor_line"])
    assert place == ("messy", [line for line, _ in LINES].index("\t".join(TRAIN[7]).encode()) + 1)
    assert (duplicate["source"], duplicate["target"]) == (None, None)
    copies = [row for row in found if row["corpus"] == "web" and row["survivor_line"]]
    assert {row["survivor_corpus"] for row in copies} == {"messy"}
    assert {row["survivor_line"] - row["line"] for row in copies} == {place[1] - 7 - 101}


def test_training_has_no_held_out_text_and_validation_has_all_pairs(folder):
    train, validation = (texts(folder / "out", name) for name in ("train", "validation"))
    assert sorted(validation) == sorted(HELD_OUT)
    held_out = {text for pair in (*HELD_OUT, EXCLUDED) for text in pair}
    assert not {text for pair in train for text in pair} & held_out
    assert {*TRAIN} <= {*train} <= {*TRAIN, *WEB}


def test_number_of_workers_does_not_change_the_bytes(folder):
    assert run(*command(folder, "two", "--", "--direct_num_workers=2")) == 0
    assert digest(folder / "two") == digest(folder / "out")


def test_finished_folder_is_only_checked_and_another_option_is_refused(folder, capsys):
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()}
    assert run(*command(folder, "out")) == 0
    assert run(*command(folder, "out", "--dry-run")) == 0
    capsys.readouterr()
    assert run(*command(folder, "out", "--min-letters", "0.5")) == 2
    assert "--min-letters was 0.25 and is now 0.5" in last_error(capsys)
    assert {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()} == before


def test_test_split_has_its_texts_and_is_not_in_training(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in GOOD))
    flags = ("--test-fraction", "0.1", "--vocabulary-type", "char", "--output", tmp_path / "out")
    assert run("preprocess", tmp_path / "a.tsv", *flags) == 0
    table = pq.read_table(next((tmp_path / "out").glob("test-*.parquet")))
    test = {*zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)}
    train = {*texts(tmp_path / "out", "train")}
    assert test <= {*GOOD}
    assert test
    assert not {text for pair in test for text in pair} & {text for pair in train for text in pair}
