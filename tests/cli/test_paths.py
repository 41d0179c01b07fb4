"""file:// URLs, which every command accepts as paths."""

import pytest
from command_line import TEXTS, last_error, run, write_corpus

from tt.cli.shared_options import plain_path, plain_paths
from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:///data/a.tsv:0:1", "/data/a.tsv:0:1"),
        ("file://localhost/data/a.tsv", "/data/a.tsv"),
        ("file:/data/a.tsv", "/data/a.tsv"),
        ("n=file:///a%20b/*.en+file:///a%2Bb.de", "n=/a b/*.en+/a+b.de"),
        ("a.en+file:///a.de", "a.en+/a.de"),
        # All other texts remain unchanged.
        ("gs://b/a%20b.tsv", "gs://b/a%20b.tsv"),
        ("a%20b.tsv", "a%20b.tsv"),
        ("file", "file"),
        ("file:0:1", "file:0:1"),
        ("myfile:///a", "myfile:///a"),
        ("", ""),
    ],
)
def test_file_urls_become_local_paths(text, expected):
    assert plain_path(text) == expected


@pytest.mark.parametrize("text", ["file://server/a.tsv", "a.en+file://server/a.de"])
def test_urls_of_other_machines_are_refused(text):
    with pytest.raises(
        UserError, match=r"names a file on the machine server\. Choose a local path"
    ):
        plain_path(text)


def test_urls_in_all_parameters_become_paths():
    given = {"output": "file:///x", "corpora": ["file:///a", "b"], "seed": 3, "download": None}
    assert plain_paths(given) == given | {"output": "/x", "corpora": ["/a", "b"]}


def test_preprocess_accepts_urls(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "c.yaml").write_text(f"exclude: file://{tmp_path}/a.xx\nheld_out_by: pair\n")
    here = f"file://{tmp_path}"
    arguments = (f"n={here}/a.en+{here}/a.xx", *TEXTS[4:], "--output", f"{here}/out")
    (tmp_path / "held.en").write_text("seven seven seven seven\n")
    held_out = ("--validation", f"{here}/held.en+{here}/held.en")
    assert run("preprocess", *arguments, *held_out) == 0
    manifest = DatasetManifest.load(tmp_path / "out")
    assert [file["path"] for source in manifest.sources for file in source["files"]] == [
        f"{tmp_path}/a.en", f"{tmp_path}/a.xx", f"{tmp_path}/held.en", f"{tmp_path}/held.en",
    ]  # fmt: skip
    assert "gcp" not in capsys.readouterr().err
    elsewhere = (*arguments[:-1], f"{here}/elsewhere")
    assert run("preprocess", "--config", f"{here}/c.yaml", *elsewhere, "--dry-run") == 0
    assert f"+ {tmp_path}/a.xx" in " ".join(capsys.readouterr().out.split())
    assert run("preprocess", "file://server/a.tsv") == 2
    assert "names a file on the machine server" in capsys.readouterr().err


OUTPUTS = {
    "preprocess": ("preprocess", "a.en+a.xx", *TEXTS[4:], "--output"),
    "train": ("train", "--dataset", "DATASET", "--run"),
    "translate-batch": ("translate-batch", "in.txt", "--model", "MODEL", "--output"),
    "back-translate": ("back-translate", "in.txt", "--model", "MODEL", "--output"),
    "average": ("average", "--run", "RUN", "--output"),
    "export": ("export", "MODEL", "--format", "saved-model", "--output"),
    "import": ("import", "huggingface", "MODEL", "--output"),
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_slash_at_the_end_of_an_output_folder_changes_nothing(
    tmp_path, monkeypatch, capsys, finish_run, toy_dataset, command
):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "in.txt").write_text("one two\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    trained = finish_run(tmp_path / "run")
    places = {"RUN": trained, "MODEL": trained / "model", "DATASET": toy_dataset}
    arguments = [places.get(each, each) for each in OUTPUTS[command]]
    said = []
    for output in ("out", "out/", "./out//"):
        assert run(*arguments, output) == 2
        said.append(last_error(capsys).replace("./out", "out"))
    assert set(said) == {said[0]}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_mistake_frees_an_output_folder_with_a_slash(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "out").mkdir()
    corpus = ("preprocess", "a.en+a.xx", "--output", "./out//")
    assert run(*corpus, "--vocabulary-size", "5000") == 2
    assert "SentencePiece cannot train" in last_error(capsys)
    assert run(*corpus, "--vocabulary-size", "36") == 0
    assert (tmp_path / "out/dataset.json").is_file()
