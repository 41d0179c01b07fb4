"""Corpora whose sides are swapped are refused before a run, with the right command."""

import gzip
import re

import pytest
from command_line import last_error, run
from corpora import ENGLISH, GERMAN, open_named, options, write_tsv

from tt.model.errors import UserError
from tt.pipelines.preprocess.first_rows import check_first_rows
from tt.pipelines.preprocess.ready_made import TfdsPairs

BOTH = {"source_language": "en", "target_language": "de"}


def check(corpora, *, validation=(), language_filter=None, **languages):
    sources = open_named(corpora=[*corpora, *validation], **languages)
    check_first_rows(sources, options("out", language_filter=language_filter, **languages))


def refuse(corpora, **languages):
    with pytest.raises(UserError) as error:
        check(corpora, **languages)
    return str(error.value)


def test_swapped_columns_are_refused_with_the_corpus_to_write(tmp_path):
    path = write_tsv(tmp_path / "a.tsv", GERMAN, ENGLISH).path
    assert refuse([path], **BOTH) == (
        f"{path} has source and target swapped: 128 of 128 source texts with a detected language "
        "are in de and 128 of 128 target texts with a detected language are in en, but "
        f"`source_language` is en and `target_language` is de. Write :1:0 after its path, or "
        "set `source_language=de` and `target_language=en`"
    )
    check([f"{path}:1:0"], **BOTH)
    check([path], source_language="de", target_language="en")
    check([path])
    for given in ({"source_language": "en"}, {"target_language": "de"}):
        assert "set `source_language=de` and `target_language=en`" in refuse([path], **given)


def test_a_swapped_file_after_a_dataset_of_tfds_is_refused(tmp_path):
    folder = tmp_path / "prepared"
    folder.mkdir()
    prepared = TfdsPairs(
        dataset="x",
        split="train",
        directory=str(folder),
        source_language="en",
        target_language="de",
    )
    swapped = write_tsv(tmp_path / "a.tsv", GERMAN, ENGLISH)
    with pytest.raises(UserError, match=re.escape(f"{swapped.path} has source and target")):
        check_first_rows([prepared, swapped], options("out", **BOTH))


def test_other_languages_and_mixed_corpora_are_not_refused(tmp_path):
    swapped = write_tsv(tmp_path / "a.tsv", GERMAN, ENGLISH).path
    wrong = {"source_language": "fr", "target_language": "de"}
    check([swapped], **wrong, language_filter=False)  # a warning at the end
    mixed = write_tsv(tmp_path / "b.tsv", ENGLISH[:64] + GERMAN[:64], GERMAN[:64] + ENGLISH[:64])
    check([mixed.path], **BOTH)
    few = write_tsv(tmp_path / "c.tsv", GERMAN[:19], ENGLISH[:19]).path  # too few texts
    check([few], **BOTH)
    same = write_tsv(tmp_path / "d.tsv", GERMAN, GERMAN).path
    check([same], **BOTH)


CORPORA = [
    ("multi30k/val", "en", "fr"), ("tatoeba_de_en/dev", "de", "en"), ("news_zh_en/dev", "zh", "en")
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "target"), CORPORA)
def test_real_corpora(shared_data, tmp_path, name, source, target):
    paths = [str(shared_data / f"{name}.{code}.gz") for code in (source, target)]
    check(["+".join(paths)], source_language=source, target_language=target)
    found = refuse(["+".join(paths[::-1])], source_language=source, target_language=target)
    assert "Swap its two files, or" in found
    # A line is missing at the beginning of the targets.
    content = gzip.decompress((shared_data / f"{name}.{target}.gz").read_bytes())
    (tmp_path / "late.txt").write_bytes(content.split(b"\n", 1)[1] + b"last\n")
    found = refuse(
        [f"{paths[0]}+{tmp_path}/late.txt"], source_language=source, target_language=target
    )
    assert "from about line 1 on, line N of the sources fits line N-1 of the targets" in found


@pytest.mark.parametrize(
    ("line", "columns", "numbers", "found", "fix"),
    [
        ("a\tx", "2:0", "2 and 0", "2 columns", "Write {path}:0:1"),
        ("a, x", "0:1", "0 and 1", "1 column", "Choose a file with tabs"),
    ],
)
def test_columns_that_do_not_exist_are_refused(
    tmp_path, capsys, line, columns, numbers, found, fix
):
    path = tmp_path / "a.tsv"
    path.write_text(f"{line}\n" * 3)
    assert run("preprocess", f"{path}:{columns}", "--output", tmp_path / "out") == 2
    expected = (
        f"{path} must have the columns {numbers}, counted from 0, but its first 3 lines have "
        f"at most {found}. {fix.format(path=path)}"
    )
    assert last_error(capsys).endswith(expected)
    assert not (tmp_path / "out").exists()


def test_a_few_short_lines_are_no_reason_to_refuse_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("short\n" * 30 + "a\tx\ty\n")
    check([f"{tmp_path}/a.tsv:1:2"])
    (tmp_path / "empty.tsv").write_text("")
    check([f"{tmp_path}/empty.tsv:1:2"])


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_wrong_language_that_rejects_most_pairs_is_refused(tmp_path, side):
    path = write_tsv(tmp_path / "a.tsv", ENGLISH, GERMAN).path
    found = {"source": "en", "target": "de"}[side]
    wrong = BOTH | {f"{side}_language": "fr"}
    message = refuse([path], **wrong)
    assert message.startswith(f"{path} seems to be in another language: the language filter would")
    assert f"because most {side} texts are in {found}, but `{side}_language` is fr" in message
    assert f"Set `{side}_language={found}`, " in message
    check([path], **BOTH)
    check([path], **wrong, language_filter=False)


# The filter is sure of two thirds of the wrong pairs.
@pytest.mark.parametrize(("wrong", "place"), [(4, "beginning"), (9, "everywhere")])
def test_only_a_majority_of_pairs_in_another_language_is_refused(tmp_path, place, wrong):
    count, sources, targets = 1000, [], []
    for i in range(count):
        is_wrong = i % 10 < wrong if place == "everywhere" else 10 * i < wrong * count
        sources.append(f"{ENGLISH[i % len(ENGLISH)]} {i}")
        targets.append(
            (ENGLISH if is_wrong else GERMAN)[37 * i % 341]
        )  # no factor 7, as the sample
    path = write_tsv(tmp_path / "a.tsv", sources, targets).path
    if wrong > 5:
        assert "`target_language` is de" in refuse([path], **BOTH)
    else:
        check([path], **BOTH)


def test_the_command_refuses_a_wrong_language_before_the_run(tmp_path, capsys):
    path = write_tsv(tmp_path / "a.tsv", ENGLISH, GERMAN).path
    languages = ("--source-language", "en", "--target-language", "fr")
    assert run("preprocess", path, *languages, "--output", tmp_path / "out") == 2
    said = last_error(capsys)
    assert "Set --target-language de, choose another corpus, or set --no-language-filter" in said
    assert not (tmp_path / "out").exists()
