"""`tt init`: a file for what lies in a folder, as `--config` reads it.

That the three commands run by it is tested with docs/start.md.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command_line import last_error, run

from cli.config_file import section_of
from cli.main import load_command
from model.dataset.manifest import DatasetManifest
from pipelines.summaries.project_file import OFTEN_WANTED


def write(folder, *names):
    for name in names:
        (folder / name).write_text("one two\n" * 9)


def write_table(path, **columns):
    pq.write_table(pa.table(columns), path)


def init(monkeypatch, folder):
    """Runs `tt init` in a folder; returns its sections."""
    monkeypatch.chdir(folder)
    assert run("init") == 0
    return yaml.safe_load((folder / "tt.yaml").read_text("utf-8"))


def test_parallel_texts_and_a_table(tmp_path, monkeypatch, capsys):
    write(tmp_path, "train.en", "train.no", "dev.en", "dev.no", "test.en", "test.no")
    write_table(tmp_path / "a.parquet", id=["a"], body=["a long text"])
    found = init(monkeypatch, tmp_path)
    assert found == {
        "preprocess": {
            "source": ["train.en"], "target": ["train.no"],
            "source_language": "en", "target_language": "no",  # which YAML reads as false
            "validation_source": ["dev.en"], "validation_target": ["dev.no"],
            "exclude": ["test.en", "test.no"], "output": "dataset",
        },
        "train": {"dataset": "dataset", "run": "run"},
        "translate-batch": {
            "input": ["a.parquet"], "text_column": ["body"], "model": "run", "output": "translated",
        },
    }  # fmt: skip
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"tt {name} --config tt.yaml" for name in ("preprocess", "train", "translate-batch")
    ]
    assert "Options: tt.yaml" in printed.err


def test_parquet_with_two_languages(tmp_path, monkeypatch, capsys):
    texts = [f"{a} {b}" for a in ["one", "two", "three"] for b in ["four", "five", "six"]]
    write_table(tmp_path / "pairs.parquet", en=texts, de=[text[::-1] for text in texts])
    found = init(monkeypatch, tmp_path)
    assert found["preprocess"]["corpora"] == ["pairs.parquet:en:de"]
    assert found["preprocess"]["source_language"] == "en"
    assert found["translate-batch"]["text_column"] == ["en"]
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0
    assert "pairs.parquet" in capsys.readouterr().out


ENGLISH = ["The dog is in the house.", "There was no one at the window."]
GERMAN = [
    "Der Hund ist in dem Haus, und das ist gut.",
    "An dem Fenster war zu dieser Zeit niemand.",
]


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv"])
def test_the_column_in_the_source_language_is_translated(tmp_path, monkeypatch, ending):
    write(tmp_path, "train.en", "train.de")
    columns = {"ref": GERMAN, "body": ENGLISH, "id": ["a", "b"]}
    if ending == "parquet":
        write_table(tmp_path / "a.parquet", **columns)
    else:
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        text = "\n".join("\t".join(row) for row in rows) + "\n"
        if ending == "csv":
            text = text.replace(",", "").replace("\t", ",")
        (tmp_path / f"a.{ending}").write_text(text)
    assert init(monkeypatch, tmp_path)["translate-batch"]["text_column"] == ["body"]
    said = "# Its texts seem to be in en, as the corpus's source; others have texts, too: ref, id."
    assert said in (tmp_path / "tt.yaml").read_text()


@pytest.mark.parametrize(
    ("columns", "expected", "why"),
    [
        ({"title": ENGLISH, "body": [2 * text for text in ENGLISH], "ref": [9 * t for t in GERMAN]},
         "body", "The column of the longest texts in en, as the corpus's source; others"),
        ({"ref": GERMAN, "id": ["a", "b"]}, "ref", "The column of the longest texts; others"),
    ],
)  # fmt: skip
def test_the_longest_texts_of_those_that_may_be_meant(
    tmp_path, monkeypatch, columns, expected, why
):
    write(tmp_path, "train.en", "train.de")
    write_table(tmp_path / "a.parquet", **columns)
    assert init(monkeypatch, tmp_path)["translate-batch"]["text_column"] == [expected]
    assert f"# {why}" in (tmp_path / "tt.yaml").read_text()


@pytest.mark.parametrize("name", ["run", "dataset"])
def test_a_model_or_dataset_tells_the_language_of_the_column(
    tmp_path, monkeypatch, trained_toy, dataset, name
):
    manifest = DatasetManifest.load(dataset)
    german = dataclasses.replace(manifest, source_language="de")
    write_table(tmp_path / "a.parquet", body=[9 * text for text in ENGLISH], ref=GERMAN)
    if name == "dataset":
        (tmp_path / name).mkdir()
        (tmp_path / name / "dataset.json").write_text(german.to_json())
    else:
        shutil.copytree(trained_toy.run, tmp_path / name)
        set_source_language(tmp_path / name / "model", "de")
    assert init(monkeypatch, tmp_path)["translate-batch"]["text_column"] == ["ref"]
    assert f"seem to be in de, as the source of {name};" in (tmp_path / "tt.yaml").read_text()


def set_source_language(model, code):
    values = json.loads((model / "config.json").read_text())
    values["about"]["data"]["source_language"] = code
    (model / "config.json").write_text(json.dumps(values))


def write_tsv(path, count=30):
    text = "".join(f"The dog sees {n} of {n} houses.\t{n} von {n} Katzen.\n" for n in range(count))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def test_tsv_by_its_uses_and_a_table_of_csv(tmp_path, monkeypatch, capsys):
    for name in ("pairs.tsv.gz", "dev.tsv", "test.tsv"):
        write_tsv(tmp_path / name)
    (tmp_path / "products.csv").write_text("id,title\n7,two one\n")
    found = init(monkeypatch, tmp_path)
    assert found["preprocess"] == {
        "corpora": ["pairs.tsv.gz:0:1"], "validation": ["dev.tsv:0:1"], "output": "dataset",
    }  # fmt: skip
    assert found["translate-batch"]["input"] == ["products.csv"]
    assert found["translate-batch"]["text_column"] == ["title"]
    assert "which are left out: test.tsv." in (tmp_path / "tt.yaml").read_text("utf-8")
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0
    assert "dev.tsv  0.001 MB (held out)" in capsys.readouterr().out


def test_pairs_of_jsonl_and_parts_of_a_table(tmp_path, monkeypatch):
    lines = [{"translation": {"en": f"the {n} dogs", "de": f"die {n} Hunde"}} for n in range(30)]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "articles").mkdir()
    for name in ("a", "b"):
        write_table(tmp_path / f"articles/{name}.parquet", body=["a text"])
    found = init(monkeypatch, tmp_path)
    assert found["preprocess"]["corpora"] == ["old.jsonl:translation.en:translation.de"]
    assert found["preprocess"]["target_language"] == "de"
    assert found["translate-batch"]["input"] == ["articles/*.parquet"]
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0


def test_parts_of_a_folder_by_their_uses(tmp_path, monkeypatch, capsys):
    (tmp_path / "corpus").mkdir()
    for name in ("dev", "test", "train"):
        write_tsv(tmp_path / f"corpus/{name}.tsv")
    (tmp_path / "data").mkdir()
    texts = [f"The dog sees {n} of {n} houses." for n in range(30)]
    for name in ("test-0-of-1", "train-0-of-2", "train-1-of-2", "validation-0-of-1"):
        write_table(tmp_path / f"data/{name}.parquet", en=texts, de=texts[::-1])
    found = init(monkeypatch, tmp_path)["preprocess"]
    assert found["corpora"] == ["corpus/train.tsv:0:1", "data/train-*.parquet:en:de"]
    assert found["validation"] == ["corpus/dev.tsv:0:1", "data/validation-0-of-1.parquet:en:de"]
    text = " ".join((tmp_path / "tt.yaml").read_text("utf-8").replace("\n  #", "").split())
    assert "left out: corpus/test.tsv, data/test-0-of-1.parquet." in text
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert "train-1-of-2.parquet" in printed
    assert "test" not in printed


def test_what_cannot_be_told_is_a_comment(tmp_path, monkeypatch, trained_toy):
    write_tsv(tmp_path / "pairs.tsv")
    (tmp_path / "odd.tsv").write_text("1\tThe dog.\n2\tThe cat.\n")
    (tmp_path / "pairs.csv").write_text("en,de\na,b\n")
    (tmp_path / "my-run").symlink_to(trained_toy.run)
    found = init(monkeypatch, tmp_path)
    assert found["preprocess"]["corpora"] == ["pairs.tsv:0:1"]
    text = " ".join((tmp_path / "tt.yaml").read_text("utf-8").replace("\n  #", "").split())
    assert "What odd.tsv holds cannot be told. If it has pairs, with their columns:" in text
    assert 'corpora: ["odd.tsv:0:1"]' in text or "corpora: [odd.tsv:0:1]" in text
    assert "which reads TSV, JSONL and Parquet: pairs.csv." in text
    assert "init_from: my-run" in text


def test_a_dataset_alone_is_trained_on(tmp_path, monkeypatch, capsys, dataset):
    (tmp_path / "my-data").symlink_to(dataset)
    found = init(monkeypatch, tmp_path)
    assert set(found) == {"train", "translate-batch"}
    assert found["train"]["dataset"] == "my-data"
    printed = capsys.readouterr().out
    assert printed == "tt train --config tt.yaml\n", "there is no table to translate yet"


def test_a_model_alone_translates(tmp_path, monkeypatch, trained_toy):
    (tmp_path / "my-run").symlink_to(trained_toy.run)
    write_table(tmp_path / "a.parquet", text=["one two"])
    found = init(monkeypatch, tmp_path)
    assert set(found) == {"translate-batch"}
    assert found["translate-batch"]["model"] == "my-run"
    assert run("translate-batch", "--config", "tt.yaml", "--dry-run") == 0


def test_an_empty_folder_gets_the_embedded_corpus(tmp_path, monkeypatch):
    found = init(monkeypatch, tmp_path)
    assert found["preprocess"] == {"output": "dataset"}
    assert found["translate-batch"]["input"] == ["input.parquet"]
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["dev.tsv"], ["  # validation: [dev.tsv:0:1]"]),
        (["dev.en", "dev.de"],
         ["  # validation_source: [dev.en]", "  # validation_target: [dev.de]"]),
        (["test.en", "test.de"], ["  # exclude: [test.en, test.de]"]),
    ],
)  # fmt: skip
def test_what_is_held_out_of_no_corpus_is_a_comment(tmp_path, monkeypatch, names, expected):
    for name in names:
        write_tsv(tmp_path / name)
    assert init(monkeypatch, tmp_path)["preprocess"] == {"output": "dataset"}
    lines = (tmp_path / "tt.yaml").read_text("utf-8").splitlines()
    assert [line for line in lines if line in expected] == expected
    assert run("preprocess", "--config", "tt.yaml", "--dry-run") == 0


def test_every_option_that_stands_there_as_a_comment_can_be_used(tmp_path, monkeypatch):
    init(monkeypatch, tmp_path)
    text = (tmp_path / "tt.yaml").read_text("utf-8")
    text = re.sub(r"(?m)^  # ([a-z_]+: (?!\[).*)$", r"  \1", text)
    path = tmp_path / "all.yaml"
    path.write_text(text)
    values = yaml.safe_load(text)
    for name, options in OFTEN_WANTED.items():
        given = {key.replace("-", "_"): value for key, value in values.items()}
        assert options.items() <= section_of(given, command=name, path="x").items()
        load_command(name).make_context(f"tt {name}", ["--config", str(path)], obj=[])


def test_a_file_that_is_there_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tt.yaml").write_text("mine: 1\n")
    assert run("init") == 2
    assert "tt.yaml is there already: replace it with --force" in last_error(capsys)
    assert (tmp_path / "tt.yaml").read_text() == "mine: 1\n"
    assert run("init", "--force") == 0
    assert "mine" not in (tmp_path / "tt.yaml").read_text()


def test_what_cannot_be_read_or_written_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"no Parquet")
    assert run("init") == 0
    assert "a.parquet cannot be read as its ending says, and is left out" in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("some notes\n", "utf-16")
    assert run("init", "--force") == 0
    told = "notes.txt cannot be read as text in UTF-8, and is left out"
    assert told in capsys.readouterr().err
    assert run("init", "--output", "no/such/folder.yaml") == 2
    assert "no/such/folder.yaml cannot be written" in last_error(capsys)


@pytest.mark.parametrize(
    ("text", "command", "message"),
    [
        ("train: {seed: 2}", "evaluate", "has no section evaluate: add one"),
        ("export: {}\ntrian: {seed: 2}", "train", "Received: trian (did you mean train?)"),
        ("train: {seed: 2}\nseed: 3", "train", "Received: seed (put it into a section)"),
        ("train: {seed: 2}\nexport: 3", "train", "export must be a section, as others are"),
        ("train: {sede: 2}", "train", "there is no option sede: did you mean seed?"),
        ("train: {seed: x}", "train", "seed must be a whole number"),
        ("train: {log-every: 1, log_every: 2}", "train", "says log_every twice"),
    ],
)
def test_mistakes_in_sections(tmp_path, capsys, text, command, message):
    path = tmp_path / "tt.yaml"
    path.write_text(text)
    arguments = ("x", "--reference", "y") if command == "evaluate" else ()
    assert run(command, *arguments, "--config", path) == 2
    assert message in last_error(capsys)
