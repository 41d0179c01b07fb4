"""Corpus strings, TFDS corpora and the embedded corpus are opened, cut and read."""

import bz2
import dataclasses
import functools
import gzip
import http.server
import json
import pickle
import re
import shutil
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets
from corpora import open_named
from memory_store import MemoryStore
from unit_reading import read

from tt.model.errors import UserError
from tt.pipelines.preprocess.naming import CorpusSpec, parse_corpus
from tt.pipelines.preprocess.sources import MALFORMED, Jsonl, Tsv


@pytest.fixture
def memory():
    MemoryStore.clear()
    yield MemoryStore
    MemoryStore.clear()


def open_one(corpus, **options):
    [source] = open_named(corpora=[corpus], **options)
    return source


# Corpus strings.


def spec(kind, *paths, name="", columns=(None, None)):
    source, target = columns
    return CorpusSpec(kind=kind, paths=paths, name=name, source_column=source, target_column=target)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A.TSV.GZ", spec("tsv", "A.TSV.GZ")),
        ("A.CSV", spec("table", "A.CSV")),
        ("w=crawl-*.tsv.zst:0:2", spec("tsv", "crawl-*.tsv.zst", name="w", columns=("0", "2"))),
        ("part-*.parquet:en:de", spec("parquet", "part-*.parquet", columns=("en", "de"))),
        ("a.jsonl.bz2:t.en:t.de", spec("jsonl", "a.jsonl.bz2", columns=("t.en", "t.de"))),
        ("w=gs://b/a=b/x.jsonl:s:t",
         spec("jsonl", "gs://b/a=b/x.jsonl", name="w", columns=("s", "t"))),
        ("data/lang=en/x.parquet", spec("parquet", "data/lang=en/x.parquet")),
        ("tfds:a/b:1.0.0", spec("tfds", "a/b:1.0.0")),
        ("ted=tfds:a/b:1.*.*:ru:en", spec("tfds", "a/b:1.*.*", name="ted", columns=("ru", "en"))),
        ("n=*.en.gz+*.de.gz", spec("text", "*.en.gz", "*.de.gz", name="n")),
        ("gs://b/x+s3://b/y", spec("text", "gs://b/x", "s3://b/y")),
        ("fra.txt:0:12", spec("tsv", "fra.txt", columns=("0", "12"))),
        ("a:b.c:0:12", spec("tsv", "a:b.c", columns=("0", "12"))),
        ("n=a.parquet:0:1", spec("parquet", "a.parquet", name="n", columns=("0", "1"))),
    ],
)  # fmt: skip
def test_corpus_strings(text, expected):
    assert parse_corpus(text) == expected


@pytest.mark.parametrize(
    ("there", "text", "expected"),
    [
        (["a=b*.tsv"], "a=b*.tsv", spec("tsv", "a=b*.tsv")),
        (["a:0.tsv:1.tsv"], "a:0.tsv:1.tsv", spec("tsv", "a:0.tsv:1.tsv")),
        (["c++.tsv"], "n=c++.tsv:0:1", spec("tsv", "c++.tsv", name="n", columns=("0", "1"))),
        (["a", "b:0:1"], "a+b:0:1", spec("text", "a", "b:0:1")),
        (["c++.en", "c.de"], "c++.en+c.de", spec("text", "c++.en", "c.de")),
    ],
)
def test_existing_path_takes_precedence_over_the_syntax(there, text, expected):
    assert parse_corpus(text, exists=there.__contains__) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a.txt",
            r"'a.txt' has .*\*.tsv, \*.csv, \*.jsonl, .*tfds:NAME.*SOURCE\+TARGET.*fra.txt:0:1",
        ),
        ("a.txt:en:de", "corpus 'a.txt:en:de' has an unknown format"),
        ("", "corpus '' has an unknown format"),
        ("web=a.tsv:0", "'web=a.tsv:0' must end in no columns or in two.*Received: ':0'"),
        ("a.tsv:", "Received: ':'"),
        ("a.parquet:a:b:c", "Received: ':a:b:c'"),
        ("tfds:a/b:ru", "Received: ':ru'"),
        ("c++.en+c++.de", "two existing files with a \\+ between them"),
        ("a.en+", "two existing files with a \\+ between them"),
    ],
)
def test_bad_corpus_strings(text, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_corpus(text)
    assert "\n" not in str(caught.value)


# Sources and their options.


def write_corpora(put):
    """Write a corpus of every kind with `put(name, content)`; files a and b have a pair each."""
    put("a.en.gz", gzip.compress(b"text a\n"))
    put("b.en.gz", gzip.compress(b"text b\n"))
    put("a.de.gz", gzip.compress(b"text x\n"))
    put("b.de.gz", gzip.compress(b"text y\n"))
    put("a.tsv.bz2", bz2.compress(b"0\ttsv a\ttsv x\n"))
    put("b.tsv.bz2", bz2.compress(b"0\ttsv b\ttsv y\n"))
    put("c.jsonl", b'{"translation": {"en": "json a", "de": "json x"}}\n')
    table = pa.table(
        {
            "en": ["parquet a"],
            "de": ["parquet x"],
            "translation": [{"en": "struct a", "de": "struct x"}],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    put("d.parquet", sink.getvalue().to_pybytes())


def test_sources_of_all_kinds_in_one_run(tmp_path, memory):
    write_corpora(lambda name, content: (tmp_path / name).write_bytes(content))
    write_corpora(lambda name, content: memory.put(f"mem://bucket/{name}", content))
    for folder in (str(tmp_path), "mem://bucket"):
        sources = open_named(
            corpora=[
                f"web={folder}/*.tsv.bz2:1:2",
                f"{folder}/c.jsonl:translation.en:translation.de",
                f"{folder}/*.en.gz+{folder}/*.de.gz",
                f"nested={folder}/d.parquet:translation.en:translation.de",
                f"{folder}/d.parquet",
            ],
            source_language="en",
            target_language="de",
        )
        assert [(source.kind, source.name, source.file_of(0)) for source in sources] == [
            ("tsv", "web", f"{folder}/a.tsv.bz2"),
            ("tsv", "web", f"{folder}/b.tsv.bz2"),
            ("jsonl", f"{folder}/c.jsonl", f"{folder}/c.jsonl"),
            ("text", f"{folder}/a.en.gz + {folder}/a.de.gz", f"{folder}/a.en.gz"),
            ("text", f"{folder}/b.en.gz + {folder}/b.de.gz", f"{folder}/b.en.gz"),
            ("parquet", "nested", f"{folder}/d.parquet"),
            ("parquet", f"{folder}/d.parquet", f"{folder}/d.parquet"),
        ]
        assert [source.identity()["columns"] for source in sources] == [
            [1, 2],
            [1, 2],
            ["translation.en", "translation.de"],
            [],
            [],
            ["translation.en", "translation.de"],
            ["en", "de"],
        ]
        rows = []
        for order, source in enumerate(sources):
            (tmp_path / "work" / str(order)).mkdir(parents=True)
            rows += read(source, tmp_path / "work" / str(order))
            assert json.loads(json.dumps(source.identity())) == source.identity()
            assert source.describe().startswith(f"{source.kind}  ")
            assert pickle.loads(pickle.dumps(source)) == source
            assert len(pickle.dumps(source)) < 1000
        assert rows == [
            ("tsv a", "tsv x", None),
            ("tsv b", "tsv y", None),
            ("json a", "json x", None),
            ("text a", "text x", None),
            ("text b", "text y", None),
            ("struct a", "struct x", None),
            ("parquet a", "parquet x", None),
        ]
        shutil.rmtree(tmp_path / "work")


def test_columns_of_a_corpus_string_take_precedence_over_options(tmp_path):
    (tmp_path / "a.tsv").write_text("1\ta\tx\n2\tb\n")
    named = open_one(f"{tmp_path}/a.tsv:1:2", source_column="0", target_column="0")
    assert named == Tsv(str(tmp_path / "a.tsv"), 1, 2)
    source = open_one(str(tmp_path / "a.tsv"), source_column="2", target_column="1")
    assert read(source, tmp_path) == [("x", "a", None), ("2\tb", "", "malformed")]
    (tmp_path / "a.jsonl").write_text("")
    path = str(tmp_path / "a.jsonl")
    assert open_one(path) == Jsonl(path, "source", "target")
    assert open_one(path, target_language="de") == Jsonl(path, "source", "de")
    assert open_one(path, source_column="s", source_language="en") == Jsonl(path, "s", "target")


def test_globs_on_any_file_system(memory):
    for name in ("b.tsv", "a.tsv", "x/c.tsv", "[d].tsv"):
        memory.put(f"mem://b/{name}", b"a\tb\n")

    def found(pattern):
        return [s.path.removeprefix("mem://b/") for s in open_named(corpora=[pattern])]

    assert found("mem://b/?.tsv") == ["a.tsv", "b.tsv"]
    assert found("mem://b/**.tsv") == ["[d].tsv", "a.tsv", "b.tsv", "x/c.tsv"]
    assert found("mem://b/[d].tsv") == ["[d].tsv"]
    assert found("n=mem://b/x/*.tsv:1:0") == ["x/c.tsv"]
    memory.put("mem://b/x.tsv/c.tsv", b"")
    with pytest.raises(UserError, match=r"mem://b/x\.tsv is a folder"):
        found("mem://b/x.tsv")


# The embedded corpus, and file names.


def parquet_file(tmp_path):
    table = pa.table({"en": ["a"], "de": ["x"], "n": [1], "t": [{"s": "a", "n": 1}]})
    pq.write_table(table, tmp_path / "c.parquet")
    return str(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("corpus", "options", "message"),
    [
        ("missing.tsv", {}, "no file matches missing.tsv"),
        ("web=missing*.tsv:0:1", {}, r"no file matches missing\*.tsv\. Check the path"),
        ("nosuch://b/a.tsv", {}, "nosuch://b/a.tsv cannot be looked up"),
        ("mem://b/a.tsv", {}, "no file matches mem://b/a.tsv"),
        (".", {}, r"\. is a folder\. Choose the files in it, such as '\./\*\.tsv'"),
        ("/dev/null+/dev/nul?", {"source_texts": ["/dev/null"]}, "1 `source` .* and 0 `target`"),
        (
            lambda path: f"{path}:fr:de",
            {},
            r"no column 'fr'.*\. Choose a text column after the first colon: en, de, t\.s$",
        ),
        (lambda path: f"{path}:en:dee", {}, r"no column 'dee'.* mean de\? .* the second colon: en"),
        (lambda path: f"{path}:t.x:de", {}, "no column 't.x'"),
        (
            lambda path: f"{path}:en:n",
            {},
            r"'n' of .* Received: int64\. Choose .* the second colon: en, de, t\.s$",
        ),
        (lambda path: f"{path}:en:t", {}, r"'t' of .* contain strings. Received: struct.*t\.s"),
        (lambda path: path, {"source_column": "fr"}, "no column 'fr'.* as `source_column`: en"),
    ],
)
def test_bad_corpora(tmp_path, corpus, options, message):
    corpus = corpus(parquet_file(tmp_path)) if callable(corpus) else corpus
    with pytest.raises(UserError, match=message) as caught:
        open_named(corpora=[corpus], **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "arrow"])
def test_csv_and_arrow_corpora(tmp_path, ending):
    path = tmp_path / f"c.{ending}"
    rows = [("a, b", "x\ny"), ("", "z")] * 30_000
    if ending == "arrow":
        sources, targets = zip(*rows, strict=True)
        table = pa.table({"n": range(len(rows)), "en": sources, "de": targets})
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        text = "n,en,de\n" + "".join(f'{i},"{en}","{de}"\n' for i, (en, de) in enumerate(rows))
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    source = open_one(f"{path}:en:de")
    assert source == open_one(str(path), source_language="en", target_language="de")
    assert read(source, tmp_path) == [(*row, None) for row in rows]
    with pytest.raises(UserError, match=r"no column 'fr'.* after the first colon: (n, )?en, de$"):
        open_one(f"{path}:fr:de")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    (tmp_path / "again").mkdir()
    if ending == "csv":  # only its last row is damaged
        found = read(source, tmp_path / "again")
        assert found[:-1] == [(*row, None) for row in rows[: len(found) - 1]]
        assert found[-1][2] == MALFORMED
        return
    with pytest.raises(UserError, match=re.escape(str(path))):
        read(source, tmp_path / "again")


def test_jsonl_with_late_texts_is_an_error_only_if_the_keys_are_guessed(tmp_path):
    path = tmp_path / "a.jsonl"
    others = [f'{{"meta": "{i}", "part-{i % 30}": "x"}}\n' for i in range(20_000)]
    late = '{"en": "a", "de": "x"}\n'
    path.write_text("".join([*others, late]))
    for columns in ({"source_column": "en"}, {"source_column": "en", "target_column": "de"}):
        source = open_one(str(path), **columns, source_language="en", target_language="de")
        assert source == Jsonl(str(path), "en", "de")
    rows = read(source, tmp_path)
    assert rows[-1] == ("a", "x", None)
    assert {fault for _, _, fault in rows[:-1]} == {"malformed"}
    asked = "no column 'en', .* Choose a text column as `source_column`: meta, part-0, part-1, "
    with pytest.raises(UserError, match=asked):
        open_one(str(path), source_language="en", target_language="de")


def test_jsonl_error_names_expected_and_found_keys(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 7, "text": "a", "translation": {"de": "x", "n": 1}, "note": null}\n')
    remedy = "Choose a text column as `source_column`: text, translation.de"
    for options, problem in [
        ({"source_language": "en"}, f"{path} has no column 'en', or has it twice"),
        (
            {"source_column": "id", "target_column": "text"},
            f"column 'id' of {path} must contain strings. Received: int64",
        ),
    ]:
        with pytest.raises(UserError) as caught:
            open_one(str(path), **options)
        assert str(caught.value) == f"{problem}. {remedy}"
    assert open_one(f"{path}:text:translation.de").columns() == ["text", "translation.de"]
    # Users also give languages for other purposes, so keys of these names need not exist.
    path.write_text('no json\n{"other": 1}\n{"source": "a", "target": "x", "en": "a"}\n')
    assert open_one(str(path), source_language="de").columns() == ["source", "target"]
    assert open_one(f"{path}:en:target").columns() == ["en", "target"]
    path.write_text("[1, 2]\nnothing\n")
    assert open_one(str(path)).columns() == ["source", "target"]


@pytest.mark.parametrize("column", ["en", "-1", "²"])
def test_tsv_columns_are_numbers(tmp_path, column):
    (tmp_path / "a.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=f"number, counted from 0. Received: '{column}'"):
        open_one(f"{tmp_path}/a.tsv:{column}:1")


def test_tfds(tmp_path, shared_data):
    [source] = open_named(
        corpora=["tfds:ted_hrlr_translate/ru_to_en"],
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
    assert read(source, tmp_path / "again", max_pairs=7) == rows


def test_tfds_direction(tmp_path, shared_data):
    options = {"corpora": ["tfds:wmt19_translate/zh-en"], "split": "validation[:3]"}
    options["data_dir"] = str(shared_data / "tfds")
    [given_order] = open_named(**options)
    [turned] = open_named(**options, source_language="en", target_language="zh")
    assert dataclasses.replace(turned, source_language="zh", target_language="en") == given_order
    assert [row[:2] for row in read(turned, tmp_path)] == [
        (target, source) for source, target, _ in read(given_order, tmp_path)
    ]
    assert [turned] == open_named(**options, source_language="en")


def test_tfds_corpus_string_with_a_name_and_languages(tmp_path, shared_data):
    options = {"data_dir": str(shared_data / "tfds"), "split": "test[:20]"}
    corpus = "tfds:ted_hrlr_translate/ru_to_en"
    source = open_one(f"ted={corpus}:en:ru", **options, source_language="ru")
    assert source.name == source.file_of(0) == "ted"
    assert (source.source_language, source.target_language) == ("en", "ru")
    assert source.identity()["columns"] == ["en", "ru"]
    assert source.describe().startswith(f"tfds  ted = {corpus}:test[:20]  ")
    assert source.describe().endswith(" MB, 20 pairs")
    plain = open_one(f"{corpus}:1.0.0", **options)
    assert [row[1::-1] for row in read(source, tmp_path)] == [
        row[:2] for row in read(plain, tmp_path / "work")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpora": ["tfds:nosuch"]}, "tfds:nosuch is not prepared in .*`download`"),
        (
            {"corpora": ["tfds:wmt_translate"], "language_pair": "de-en", "subsets": ["train=x"]},
            "tfds:wmt_translate is not prepared",
        ),
        (
            {"corpora": ["tfds:ted_hrlr_translate/pt_to_en"]},
            "train.tfrecord-00000-of-00001 is missing",
        ),
        (
            {"corpora": ["tfds:ted_hrlr_translate/ru_to_en"], "source_language": "xx"},
            r"no language 'xx'\. Choose en or ru",
        ),
        (
            {"corpora": ["tfds:ted_hrlr_translate/ru_to_en"], "split": "nope"},
            "cannot be read with `split` 'nope': Unknown split",
        ),
    ],
)
def test_bad_tfds_options(shared_data, options, message):
    with pytest.raises(UserError, match=message):
        open_named(**options, data_dir=str(shared_data / "tfds"))


def test_wmt_subsets_are_checked():
    with pytest.raises(UserError, match=r"`subsets` must be SPLIT=NAME.*Received: 'train=nosuch'"):
        open_named(
            corpora=["tfds:wmt_translate"],
            language_pair="de-en",
            subsets=["train=nosuch"],
            download=True,
        )
    with pytest.raises(UserError, match="needs `language_pair` as SOURCE-TARGET, and `subsets`"):
        open_named(corpora=["tfds:wmt_translate"], language_pair="de-en", download=True)


class ToyTranslate(tensorflow_datasets.core.GeneratorBasedBuilder):
    """A TFDS dataset that downloads its pairs from `url`."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")
    url = ""
    keys = ("en", "xx")

    def _info(self):
        languages = tensorflow_datasets.features.Translation(("en", "xx"))
        return self.dataset_info_from_configs(features=languages, supervised_keys=self.keys)

    def _split_generators(self, dl_manager):
        path = dl_manager.download(self.url)
        return {"train": self._generate_examples(path)}

    def _generate_examples(self, path):
        for i, line in enumerate(path.read_text().splitlines()):
            yield i, dict(zip(("en", "xx"), line.split("\t"), strict=True))


class BackTranslate(ToyTranslate):
    """Its supervised keys have another order than its features."""

    keys = ("xx", "en")


class PlainTranslate(ToyTranslate):
    """It has no supervised keys."""

    keys = None


@pytest.fixture
def loopback_url(tmp_path):
    """The address of an HTTP server for a folder, on the loopback interface."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served")
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "languages"), [("back_translate", ("xx", "en")), ("plain_translate", ("en", "xx"))]
)
def test_the_supervised_keys_of_tfds_decide_the_direction(
    tmp_path, loopback_url, monkeypatch, name, languages
):
    (tmp_path / "served/pairs.tsv").write_text("one\tuno\n")
    monkeypatch.setattr(ToyTranslate, "url", f"{loopback_url}/pairs.tsv")
    data = str(tmp_path / "data")
    (source,) = open_named(corpora=[f"tfds:{name}"], data_dir=data, download=True)
    assert (source.source_language, source.target_language) == languages


def test_tfds_downloads_only_with_the_option(tmp_path, loopback_url, monkeypatch):
    (tmp_path / "served/pairs.tsv").write_text("one\tuno\ntwo\tdos\nthree\ttres\n")
    monkeypatch.setattr(ToyTranslate, "url", f"{loopback_url}/pairs.tsv")
    options = {"corpora": ["tfds:toy_translate"], "data_dir": str(tmp_path / "data")}
    with pytest.raises(UserError, match=r"tfds:toy_translate is not prepared in .*`download`"):
        open_named(**options)
    assert not (tmp_path / "data").exists()
    (source,) = open_named(**options, download=True)
    pairs = {(source_text, target_text) for source_text, target_text, *_ in read(source, tmp_path)}
    assert pairs == {("one", "uno"), ("two", "dos"), ("three", "tres")}
    (again,) = open_named(**options, target_language="en")
    assert (again.source_language, again.target_language) == ("xx", "en")
