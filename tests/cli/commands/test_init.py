"""`tt init` writes a configuration file for the corpora and tables in a folder."""

import re
import shlex

import pytest
import yaml
from command_line import last_error, run, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.cli.config_file import read_config
from tt.cli.main import load_command


def init(monkeypatch, folder, *names, arguments=()):
    """Run `tt init` in a folder with these files; return the sections of the new file."""
    monkeypatch.chdir(folder)
    for name in names:
        (folder / name).touch()
    assert run("init", *arguments) == 0
    return yaml.safe_load((folder / "tt.yaml").read_text("utf-8"))


def test_text_files_are_paired_by_their_names(tmp_path, monkeypatch, capsys):
    found = init(
        monkeypatch, tmp_path,
        "train.en", "train.no", "web_en.txt.gz", "web_no.txt.gz", "dev.en", "dev.no", "test.en",
        "test.no", "README.md", "setup.py", "alone.de",
    )  # fmt: skip
    assert found["preprocess"] == {
        "source": ["train.en", "web_en.txt.gz"], "target": ["train.no", "web_no.txt.gz"],
        "validation": ["dev.en+dev.no"],
        "source_language": "en", "target_language": "no",  # YAML would read an unquoted no as false
        "exclude": ["test.en", "test.no"], "output": "dataset",
    }  # fmt: skip
    assert found["train"] == {"dataset": "dataset", "run": "run"}
    assert found["translate-batch"] == {"model": "run", "output": "translated"}
    assert capsys.readouterr().out.splitlines() == [
        f"tt {name} --config tt.yaml" for name in ("preprocess", "train", "translate-batch")
    ]


def test_source_precedes_target_and_tables_are_listed(tmp_path, monkeypatch):
    found = init(monkeypatch, tmp_path, "a.tgt", "a.src", "b.parquet", "c.csv.gz", "d.tsv")
    assert (found["preprocess"]["source"], found["preprocess"]["target"]) == (["a.src"], ["a.tgt"])
    assert "source_language" not in found["preprocess"]
    assert found["translate-batch"]["input"] == ["b.parquet"]
    text = (tmp_path / "tt.yaml").read_text("utf-8")
    assert "# corpora: [d.tsv]" in text
    assert "# other tables: [c.csv.gz]" in text


def test_tsv_files_are_the_corpora_if_there_are_no_text_files(tmp_path, monkeypatch):
    found = init(monkeypatch, tmp_path, "a.tsv", "b.tsv")
    assert found["preprocess"] == {"corpora": ["a.tsv", "b.tsv"], "output": "dataset"}


@pytest.mark.parametrize("names", [(), ("a.en", "a.de", "b.parquet", "c.tsv")])
def test_every_key_is_an_option_of_its_command(tmp_path, monkeypatch, names):
    init(monkeypatch, tmp_path, *names)
    for name in ("preprocess", "train", "translate-batch"):
        section = read_config("tt.yaml", command=name)
        keys = {
            option.lstrip("-").replace("-", "_")
            for each in load_command(name).params
            for option in (*each.opts, str(each.name))
        }
        assert section
        assert section.keys() <= keys


def test_existing_file_is_replaced_only_with_force(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tt.yaml").write_text("mine")
    assert run("init") == 2
    assert "tt.yaml already exists. Replace it with --force" in last_error(capsys)
    assert (tmp_path / "tt.yaml").read_text() == "mine"
    assert "preprocess" in init(monkeypatch, tmp_path, arguments=["--force"])
    capsys.readouterr()
    assert run("init", "--output", "no/such/folder.yaml") == 2
    assert "cannot be written" in last_error(capsys)


ODD = st.text("a- #,:'\"[]{}&*!|>%@`~=+?\\\x85\u2028é\udce9", min_size=1, max_size=8).map(
    lambda stem: re.sub(r"^tfds:", "", stem)
)


@settings(max_examples=40)
@given(st.lists(ODD, min_size=1, max_size=3, unique=True), st.booleans())
def test_the_file_contains_exactly_the_names_of_the_folder(tmp_path_factory, stems, are_texts):
    folder = tmp_path_factory.mktemp("names")
    endings = (".de", ".en") if are_texts else (".tsv",)
    names = [f"{stem}{ending}" for stem in stems for ending in endings]
    tables = [f"{stem}.parquet" for stem in stems]
    with pytest.MonkeyPatch.context() as patch:
        init(patch, folder, *names, *tables)
        found = read_config("tt.yaml", command="preprocess")
        translate = read_config("tt.yaml", command="translate-batch")
    if are_texts:
        assert found["source"] + found["target"] == sorted(names[::2]) + sorted(names[1::2])
    else:
        assert found == {"corpora": sorted(names), "output": "dataset"}
    assert translate == {"input": sorted(tables)[:1], "model": "run", "output": "translated"}


@pytest.mark.parametrize(
    ("stem", "ending"), [("a, b", "tsv"), ('-it\'s "b" #1', "texts"), ("a=b+c", "tsv")]
)
def test_the_written_configuration_finds_every_file(tmp_path, monkeypatch, capsys, stem, ending):
    write_corpus(tmp_path)
    source, target = tmp_path / "a.en", tmp_path / "a.xx"
    sides = [path.read_text().splitlines() for path in (source, target)]
    for path, side, suffix in zip((source, target), sides, (".src", ".tgt"), strict=True):
        path.unlink()
        if ending == "texts":
            path.with_name(f"{stem}{suffix}").write_text("\n".join(side) + "\n")
    if ending == "tsv":
        pairs = map("\t".join, zip(*sides, strict=True))
        (tmp_path / f"{stem}.tsv").write_text("\n".join(pairs) + "\n")
    monkeypatch.chdir(tmp_path)
    assert run("init", "--output", "my config.yaml") == 0
    command = capsys.readouterr().out.splitlines()[0]
    assert run(*shlex.split(command)[1:], "--dry-run") == 0
    first = f'source "{sides[0][0]}", target "{sides[1][0]}"'
    assert first in capsys.readouterr().out
