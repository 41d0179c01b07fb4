"""Every kind of corpus, cut into units and read."""

import dataclasses
import functools
import gzip
import http.server
import threading
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from model.errors import UserError
from pipelines import demo_corpus
from pipelines.sources import EmbeddedCorpus, TextPair, Tsv, sources_from_options


def cut(source, tmp_path, *, max_pairs=1000):
    (tmp_path / "work").mkdir(exist_ok=True)
    return list(
        source.cut(
            order=0, is_held_out=False, max_pairs=max_pairs, work_folder=str(tmp_path / "work")
        )
    )


def read(source, tmp_path, *, max_pairs=1000):
    """Reads all rows through units, checking that these are what they say."""
    rows = []
    for index, unit in enumerate(cut(source, tmp_path, max_pairs=max_pairs)):
        assert (unit.index, unit.first_row) == (index, len(rows))
        tables = list(unit.read())
        for table in tables:
            rows += [tuple(row.values()) for row in table.to_pylist()]
        assert len(rows) == unit.first_row + unit.rows
        assert unit.rows <= max_pairs
    return rows


def text_pair(tmp_path, source, target, *, suffix=""):
    paths = [tmp_path / f"corpus.en{suffix}", tmp_path / f"corpus.de{suffix}"]
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return TextPair(*map(str, paths))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("max_pairs", [1, 2, 1000])
def test_text_pair(tmp_path, suffix, max_pairs):
    source = text_pair(tmp_path, b"a\nb\nc\n", b"x\ny\nz", suffix=suffix)
    expected = [("a", "x", None), ("b", "y", None), ("c", "z", None)]
    assert read(source, tmp_path, max_pairs=max_pairs) == expected


def test_only_a_line_feed_ends_a_line(tmp_path):
    source = text_pair(
        tmp_path,
        "\ufeffa\u2028b\r\n\nc\rd\x0b\x85e\n".encode(),
        "\ufeff1\r\n2\n\ufeff3\r\n".encode(),
    )
    assert read(source, tmp_path) == [
        ("a\u2028b", "1", None),
        ("", "2", None),
        ("c\rd\x0b\x85e", "\ufeff3", None),
    ]


def test_invalid_utf8_is_a_fault_of_its_line_alone(tmp_path):
    source = text_pair(tmp_path, b"a\nb\xff\nc\n", b"x\ny\nz\xe4\n")
    assert read(source, tmp_path) == [
        ("a", "x", None),
        ("b\ufffd", "y", "invalid_utf8"),
        ("c", "z\ufffd", "invalid_utf8"),
    ]


def test_empty_files_have_no_units(tmp_path):
    assert cut(text_pair(tmp_path, b"", b""), tmp_path) == []


@pytest.mark.parametrize("counts", [(3, 5), (20_000, 3), (40_000, 40_001)])
def test_files_of_unequal_length_name_both_counts(tmp_path, counts):
    source = text_pair(tmp_path, b"a\n" * counts[0], b"x\n" * counts[1])
    with pytest.raises(UserError) as caught:
        cut(source, tmp_path, max_pairs=256 * 1024)
    assert f"corpus.en has {counts[0]} lines" in str(caught.value)
    assert f"corpus.de has {counts[1]}" in str(caught.value)


def test_a_truncated_gz_is_the_users_error(tmp_path):
    source = text_pair(tmp_path, b"a\nb\n" * 500, b"x\ny\n" * 500, suffix=".gz")
    path = tmp_path / "corpus.de.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match=r"corpus\.de\.gz is cut off or damaged after line"):
        cut(source, tmp_path)


def test_finished_chunks_are_not_written_again(tmp_path):
    source = text_pair(tmp_path, b"a\nb\nc\n", b"x\ny\nz\n")
    first = cut(source, tmp_path, max_pairs=2)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").iterdir()}
    (tmp_path / "corpus.en").unlink()  # the chunks are enough
    assert cut(source, tmp_path, max_pairs=2) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").iterdir()} == stamps


def test_an_interrupted_cut_goes_on(tmp_path):
    source = text_pair(tmp_path, b"a\nb\nc\n", b"x\ny\nz\n")
    units = source.cut(order=0, is_held_out=False, max_pairs=1, work_folder=str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    next(units)
    units.close()
    [chunk] = (tmp_path / "work").glob("chunk-*")
    stamp = chunk.stat().st_mtime_ns
    assert len(read(source, tmp_path, max_pairs=1)) == 3
    assert chunk.stat().st_mtime_ns == stamp


@settings(max_examples=25)
@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)
    ),
    max_pairs=st.integers(1, 7),
)
def test_any_text_is_read_back(tmp_path_factory, lines, max_pairs):
    folder = tmp_path_factory.mktemp("lines")
    content = "".join(line + "\n" for line in lines).encode()
    rows = read(text_pair(folder, content, content), folder, max_pairs=max_pairs)
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert rows == [(line, line, None) for line in expected]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_tsv(tmp_path, suffix):
    path = tmp_path / f"corpus.tsv{suffix}"
    content = b"a\tx\tV\nno tab\nb\ty\nc\tz\xff\tV\n"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert read(Tsv(str(path)), tmp_path) == [
        ("a", "x", None),
        ("no tab", "", "malformed"),
        ("b", "y", None),
        ("c", "z\ufffd", "invalid_utf8"),
    ]


def test_tsv_columns(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("1\ta\tx\n2\tb\n")
    [source] = sources_from_options(tsv=[str(path)], source_column="2", target_column="1")
    assert read(source, tmp_path) == [("x", "a", None), ("2\tb", "", "malformed")]


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.text(max_size=3) | st.none(), st.text(max_size=3)), max_size=40),
    row_group_size=st.integers(1, 15),
    max_pairs=st.integers(1, 15),
)
def test_parquet_units_cut_across_row_groups(tmp_path_factory, rows, row_group_size, max_pairs):
    folder = tmp_path_factory.mktemp("parquet")
    path = folder / "corpus.parquet"
    table = pa.table(
        {
            "id": pa.array(range(len(rows)), pa.int64()),
            "de": pa.array([t for _, t in rows], pa.large_string()),
            "en": pa.array([s for s, _ in rows], pa.string()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    [source] = sources_from_options(parquet=[str(path)], source_language="en", target_language="de")
    assert read(source, folder, max_pairs=max_pairs) == [(s, t, None) for s, t in rows]


def test_parquet_dictionary_columns(tmp_path):
    table = pa.table({"source": pa.array(["a", "b"]).dictionary_encode(), "target": ["x", "y"]})
    pq.write_table(table, tmp_path / "corpus.parquet")
    [source] = sources_from_options(parquet=[str(tmp_path / "*.parquet")])
    assert read(source, tmp_path) == [("a", "x", None), ("b", "y", None)]


def test_embedded_corpus(tmp_path, monkeypatch):
    pair = types.SimpleNamespace
    monkeypatch.setattr(
        demo_corpus, "train_pairs", lambda: [pair(source=f"s{i}", target=f"t{i}") for i in range(5)]
    )
    monkeypatch.setattr(demo_corpus, "held_out_pairs", lambda: [pair(source="a", target="b")])
    rows = [(f"s{i}", f"t{i}", None) for i in range(5)]
    assert read(EmbeddedCorpus("train"), tmp_path, max_pairs=2) == rows
    assert read(EmbeddedCorpus("held_out"), tmp_path) == [("a", "b", None)]
    assert EmbeddedCorpus("train").identity() != EmbeddedCorpus("held_out").identity()
    with pytest.raises(UserError, match="splits train and held_out"):
        EmbeddedCorpus("test")


def test_globs_are_sorted_and_paired(tmp_path):
    for name in ("b.en", "a.en", "b.de", "a.de"):
        (tmp_path / name).write_text(f"{name}\n")
    found = sources_from_options(
        source_texts=[str(tmp_path / "*.en")], target_texts=[str(tmp_path / "*.de")]
    )
    assert found == [
        TextPair(str(tmp_path / "a.en"), str(tmp_path / "a.de")),
        TextPair(str(tmp_path / "b.en"), str(tmp_path / "b.de")),
    ]


def test_a_name_with_brackets_is_a_name(tmp_path):
    path = tmp_path / "a[1].tsv"
    path.write_text("a\tb\n")
    assert sources_from_options(tsv=[str(path)]) == [Tsv(str(path))]


def test_the_identity_tells_changed_files(tmp_path):
    source = text_pair(tmp_path, b"a\n", b"x\n")
    before = source.identity()
    assert before == source.identity()
    (tmp_path / "corpus.en").write_bytes(b"ab\n")
    assert source.identity() != before


def parquet_file(tmp_path):
    pq.write_table(pa.table({"en": ["a"], "de": ["x"], "n": [1]}), tmp_path / "c.parquet")
    return [str(tmp_path / "c.parquet")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tsv": ["missing.tsv"]}, "no file at missing.tsv"),
        ({"source_texts": ["/dev/null"]}, r"as many target texts.*1 source.*0 target"),
        ({"tsv": ["."]}, r"\. is a folder"),
        ({"tsv": ["/dev/null"], "source_column": "en"}, "number from 0. Received: 'en'"),
        ({"parquet": parquet_file, "source_column": "fr"}, "no column 'fr'.*en, de, n"),
        (
            {"parquet": parquet_file, "source_column": "en", "target_column": "n"},
            "'n' of .* must hold strings. Received: int64",
        ),
        ({"parquet": lambda path: [__file__]}, "is not a Parquet file"),
    ],
)
def test_bad_options(tmp_path, options, message):
    options = {k: v(tmp_path) if callable(v) else v for k, v in options.items()}
    with pytest.raises(UserError, match=message):
        sources_from_options(**options)


def test_tfds(tmp_path, shared_data):
    [source] = sources_from_options(
        tfds=["tfds:ted_hrlr_translate/ru_to_en"],
        data_dir=str(shared_data / "tfds"),
        split="test[:10]+validation[99%:]",
    )
    assert (source.source_language, source.target_language) == ("ru", "en")
    assert source.name == "tfds:ted_hrlr_translate/ru_to_en:test[:10]+validation[99%:]"
    rows = read(source, tmp_path)
    loaded = tensorflow_datasets.load(
        "ted_hrlr_translate/ru_to_en",
        data_dir=str(shared_data / "tfds"),
        split=["test[:10]", "validation[99%:]"],
        as_supervised=True,
        download=False,
    )
    assert [row[:2] for row in rows] == [
        (source.decode(), target.decode())
        for split in loaded
        for source, target in split.as_numpy_iterator()
    ]
    assert len(rows) == 10 + 50
    assert read(source, tmp_path, max_pairs=7) == rows


def test_tfds_direction(tmp_path, shared_data):
    options = {"tfds": ["wmt19_translate/zh-en"], "split": "validation[:3]"}
    options["data_dir"] = str(shared_data / "tfds")
    [given_order] = sources_from_options(**options)
    [turned] = sources_from_options(**options, source_language="en", target_language="zh")
    assert dataclasses.replace(turned, source_language="zh", target_language="en") == given_order
    assert [row[:2] for row in read(turned, tmp_path)] == [
        (target, source) for source, target, _ in read(given_order, tmp_path)
    ]
    assert [turned] == sources_from_options(**options, source_language="en")
    assert [turned] == sources_from_options(**options, target_language="zh")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tfds": ["nosuch"]}, "tfds:nosuch is not prepared in .*--download"),
        ({"tfds": ["wmt14_translate/de-en"]}, "tfds:wmt14_translate/de-en is not prepared"),
        (
            {"tfds": ["wmt_translate"], "language_pair": "de-en", "subsets": ["train=x"]},
            "tfds:wmt_translate is not prepared",
        ),
        ({"tfds": ["ted_hrlr_translate/pt_to_en"]}, "train.tfrecord-00000-of-00001 is missing"),
        (
            {"tfds": ["ted_hrlr_translate/ru_to_en"], "source_language": "xx"},
            "no language 'xx': it has en and ru",
        ),
        (
            {"tfds": ["ted_hrlr_translate/ru_to_en"], "split": "nope"},
            "cannot be read with --split 'nope': Unknown split",
        ),
        (
            {"tfds": ["ted_hrlr_translate/ru_to_en"], "split": "train[:7"},
            r"cannot be read with --split 'train\[:7'",
        ),
    ],
)
def test_bad_tfds_options(shared_data, options, message):
    with pytest.raises(UserError, match=message):
        sources_from_options(**options, data_dir=str(shared_data / "tfds"))


def test_wmt_subsets_are_checked():
    with pytest.raises(UserError, match=r"a subset is SPLIT=NAME.*Received: 'train=nosuch'"):
        sources_from_options(
            tfds=["wmt_translate"], language_pair="de-en", subsets=["train=nosuch"], download=True
        )
    with pytest.raises(UserError, match="needs --language-pair SOURCE-TARGET and a --subset"):
        sources_from_options(tfds=["wmt_translate"], language_pair="de-en", download=True)


class ToyTranslate(tensorflow_datasets.core.GeneratorBasedBuilder):
    """A dataset as TFDS has them, that downloads its pairs from `url`."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")
    url = ""

    def _info(self):
        languages = tensorflow_datasets.features.Translation(("en", "xx"))
        return self.dataset_info_from_configs(features=languages, supervised_keys=("en", "xx"))

    def _split_generators(self, dl_manager):
        path = dl_manager.download(self.url)
        return {"train": self._generate_examples(path)}

    def _generate_examples(self, path):
        for i, line in enumerate(path.read_text().splitlines()):
            yield i, dict(zip(("en", "xx"), line.split("\t"), strict=True))


@pytest.fixture
def loopback_url(tmp_path):
    """The address of a folder that is served on the loopback interface."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_tfds_downloads_only_when_asked(tmp_path, loopback_url, monkeypatch):
    (tmp_path / "served/pairs.tsv").write_text("one\tuno\ntwo\tdos\nthree\ttres\n")
    monkeypatch.setattr(ToyTranslate, "url", f"{loopback_url}/pairs.tsv")
    options = {"tfds": ["tfds:toy_translate"], "data_dir": str(tmp_path / "data")}
    with pytest.raises(UserError, match=r"tfds:toy_translate is not prepared in .*--download"):
        sources_from_options(**options)
    assert not (tmp_path / "data").exists()
    (source,) = sources_from_options(**options, download=True)
    pairs = {(source_text, target_text) for source_text, target_text, *_ in read(source, tmp_path)}
    assert pairs == {("one", "uno"), ("two", "dos"), ("three", "tres")}
    (again,) = sources_from_options(**options, target_language="en")
    assert (again.source_language, again.target_language) == ("xx", "en")


def test_a_download_that_fails_is_one_line(tmp_path, loopback_url, monkeypatch):
    monkeypatch.setattr(ToyTranslate, "url", f"{loopback_url}/missing.tsv")
    with pytest.raises(UserError, match=r"tfds:toy_translate could not be downloaded"):
        sources_from_options(tfds=["toy_translate"], data_dir=str(tmp_path / "data"), download=True)
