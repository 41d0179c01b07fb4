"""Corpora that are broken links, pipes or devices, or whose names are not UTF-8."""

import os

import pytest

from tt.model.errors import UserError
from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest


def refused(*names, **options):
    with pytest.raises(UserError) as caught:
        open_corpora(names, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl:x:y", "a.en+a.de", "*.parquet"])
def test_broken_link(tmp_path, name):
    for suffix in ("tsv", "jsonl", "parquet", "en", "de"):
        (tmp_path / f"a.{suffix}").symlink_to(tmp_path / "nowhere")
    path = name.partition(":")[0].partition("+")[0].replace("*", "a")
    name = "+".join(f"{tmp_path}/{part}" for part in name.split("+"))
    assert refused(name) == (
        f"{tmp_path}/{path} is a link to a missing file. Replace or delete the link"
    )


@pytest.mark.parametrize("name", ["a\udcff.tsv", "*.tsv", "NAME=a\udcff.tsv"])
def test_file_name_that_is_not_utf8(tmp_path, name):
    (tmp_path / "a\udcff.tsv").write_text("x\ty\n")
    name = name.replace("=", f"={tmp_path}/") if "=" in name else f"{tmp_path}/{name}"
    assert refused(name) == (f"a file name must be UTF-8. Received: {tmp_path}/a\\xff.tsv")


@pytest.mark.parametrize("field", ["output", "exclude"])
def test_option_that_is_not_utf8_is_an_error_before_the_start(tmp_path, field):
    (tmp_path / "a.tsv").write_text("x\ty\n")
    path = f"{tmp_path}/\udcff"
    options = {"output": str(tmp_path / "out"), field: (path,) if field == "exclude" else path}
    request = PreprocessRequest(
        corpora=(f"{tmp_path}/a.tsv",), options=PreprocessOptions(**options)
    )
    with pytest.raises(UserError) as caught:
        request.plan()
    assert str(caught.value) == f"`{field}` must be UTF-8. Received: {tmp_path}/\\xff"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


@pytest.mark.parametrize(("kind", "name"), [("pipe", "a.parquet"), ("device", "a.csv")])
def test_tables_cannot_be_read_from_a_pipe_or_device(tmp_path, kind, name):
    path = tmp_path / name
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert refused(str(path)) == (
        f"{path} is a pipe or a device, from which tt reads only text, TSV and JSONL. Write the "
        "data to a file first"
    )
