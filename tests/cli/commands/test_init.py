"""`tt init` writes a configuration file for the corpora and tables in a folder."""

import pytest
import yaml
from command_line import last_error, run

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
    assert "# other tables: c.csv.gz" in text


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
