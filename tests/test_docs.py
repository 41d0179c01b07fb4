"""All blocks in the README and docs/ run.

A block that cannot run has `<!-- not run: REASON -->` on the line above it. The blocks of a
document run one after the other in one folder, as a reader types them; `<!-- in a new folder -->`
begins another folder. `test_documents.py` compares options, files and links with the code.
"""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from documents import DOCUMENTS, ROOT, blocks_of
from hub_service import running_hub
from huggingface_folders import write_marian
from pyiceberg.catalog.sql import SqlCatalog
from toy import toy_sentences
from translation_jobs import translate

from tt.model.dataset.manifest import DatasetManifest
from tt.pipelines.preprocess.ready_made import held_out_pairs

SUPPORT = ROOT / "tests/support"
LONGEST = 600  # seconds that a block may take on a slow machine

BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
SHELL = [block for block in BLOCKS if block.is_shell]
RUN = sorted({block.document for block in SHELL if not block.not_run})

# These options are added to the commands of the documents, so that each takes seconds: the last of
# equal options counts, and any option counts more than a preset or a file.
ADDED = {
    # Most texts of the tests are in other languages than the documents say.
    "preprocess": "--vocabulary-size 90 --no-language-filter",
    "train": "--encoder-layers 1 --decoder-layers 1 --d-model 16 --heads 2 --d-ff 16 "
    "--batch-tokens 512 --steps 3 --warmup-steps 2 --save-every 1 --validate-every 3 "
    "--score-every 0",
    "translate": "--max-decoding-length 8",
    "translate-batch": "--max-decoding-length 8",
    "back-translate": "--max-decoding-length 8",
}

# The files that the blocks of each document read.


def write_text(path, lines):
    """Write lines, compressed by the ending of the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(content)
        return
    compress = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(compress(content))


def write_pair(folder, name, pairs, *, ending=""):
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        write_text(folder / f"{name}.{language}{ending}", lines)


def pairs_of(number, count=50):
    """Return pairs that no other number has."""
    first = 50 * number
    return [(pair.source, pair.target) for pair in held_out_pairs()[first : first + count]]


def write_table(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def prepare_readme(folder, request):
    pairs = pairs_of(1)
    write_pair(folder, "train", pairs)
    write_pair(folder, "test", pairs_of(2, 5))
    write_text(folder / "pairs.tsv", ["\t".join(pair) for pair in [*pairs, pairs[0]]])
    write_table(folder / "articles.parquet", id=["a", "b"], body=["two one", "one. two."])


def prepare_preprocess(folder, request):
    pairs = pairs_of(1)
    write_pair(folder, "train", pairs, ending=".gz")
    write_pair(folder, "val", pairs_of(2, 5), ending=".gz")
    write_pair(folder, "test", pairs_of(3, 5))
    write_pair(folder, "a", pairs, ending=".gz")
    write_pair(folder, "news", pairs, ending=".zst")
    write_text(folder / "web.tsv.gz", ["\t".join(pair) for pair in pairs_of(4)])
    write_text(folder / "crawl-1.tsv.gz", [f"{a}\tx\t{b}" for a, b in [*pairs_of(5), ("a", "")]])
    lines = [json.dumps({"translation": {"en": a, "de": b}}) for a, b in pairs_of(6)]
    write_text(folder / "old.jsonl.bz2", lines)
    sources, targets = zip(*pairs_of(7), strict=True)
    write_table(folder / "parts/part-0.parquet", en=sources, de=targets)


def prepare_back_translation(folder, request):
    for number, name in enumerate(("train", "val", "test"), start=1):
        write_pair(folder, name, pairs_of(number, 50 if name == "train" else 5))
    write_text(folder / "german.txt", [text for _, text in pairs_of(4, 5)])
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "reverse")
    texts, _ = zip(*toy_sentences(6, seed=3), strict=True)
    write_table(folder / "news/a.parquet", lang=["de"] * 6, body=texts)
    write_text(folder / "texts.txt.gz", texts)


def prepare_train(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")
    shutil.copytree(ROOT / "model/recipes", folder / "model/recipes")
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "teacher")
    write_table(folder / "sources.parquet", source=[a for a, _ in toy_sentences(60, seed=5)])
    write_text(folder / "in-domain.tsv.gz", ["\t".join(pair) for pair in pairs_of(4)])


def prepare_dataset(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")


def prepare_run(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")


def prepare_nothing(folder, request):
    folder.mkdir()


def prepare_translate(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    sources, targets = zip(*toy_sentences(6, seed=3), strict=True)
    write_table(folder / "input.parquet", text=sources)
    rows = [{"product": {"title": text}, "tags": [text], "stars": 5} for text in sources]
    write_text(folder / "reviews.jsonl", map(json.dumps, rows))
    write_text(folder / "products.csv.gz", ["title,price", *(f"{text},007" for text in sources)])
    write_text(folder / "mixed/a.tsv", ["body", *sources])
    write_table(folder / "mixed/b.parquet", body=sources)
    for name in ("a/one", "b/two"):
        table = {"title": sources, "body": sources, "human": targets}
        write_table(folder / f"data/{name}.parquet", **table)
    write_text(folder / "text.en", sources)
    for name in ("reference.de", "text.zh", "a.zh", "b.zh"):
        write_text(folder / name, targets)
    write_text(folder / "test.en.gz", sources)
    write_text(folder / "test.tsv", [f"{a}\t{b}" for a, b in zip(sources, targets, strict=True)])


def prepare_evaluate(folder, request):
    sources, targets = zip(*pairs_of(1), strict=True)
    write_text(folder / "test.en", sources)
    worse = [text.rpartition(" ")[0] for text in targets]
    for name, texts in (("test", targets), ("a", [*targets[:9], *worse[9:]]), ("b", worse)):
        write_text(folder / f"{name}.de", texts)
    write_table(folder / "systems.parquet", a=targets, b=worse, human=targets)


def prepare_recurring(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    sources, _ = zip(*toy_sentences(6, seed=3), strict=True)
    write_table(folder / "products/day1.parquet", title=sources[:4])
    write_table(folder / "day2.parquet", title=sources[4:])
    for name, count in (("products", 4), ("today", 6)):
        write_table(folder / f"{name}.parquet", id=list(range(count)), title=sources[:count])


def prepare_columns(folder, request):
    for name in ("run", "english-german", "english-french"):
        shutil.copytree(request.getfixturevalue("trained_toy").run, folder / name)
    titles, _ = zip(*toy_sentences(3, seed=3), strict=True)
    prices = [5.0, 5.0, None]
    rows = {"id": [1, 2, 3], "lang": ["en", "de", "en"], "price": prices, "title": titles}
    write_table(folder / "products.parquet", **rows)
    for place in ("lang=en/year=2023", "lang=en/year=2024", "lang=de/year=2024"):
        write_table(folder / f"shop/{place}/part.parquet", title=titles)


def prepare_memory(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    sources, targets = zip(*toy_sentences(6, seed=3), strict=True)
    write_table(folder / "products.parquet", title=sources)
    write_text(folder / "corrections.tsv", ["source\ttarget", f"{sources[0]}\t{targets[0]}"])


def prepare_daily(folder, request):
    prepare_memory(folder, request)
    sources, _ = zip(*toy_sentences(8, seed=3), strict=True)
    for name, rows in (("day1", range(4)), ("day2", range(4, 6)), ("day3", range(1, 8))):
        write_table(folder / f"{name}.parquet", id=list(rows), title=[sources[i] for i in rows])
    write_deltalake(folder / "products", pq.read_table(folder / "day1.parquet"))


def prepare_models(folder, request):
    from foreign_models import ENGLISH, SPANISH, argos, nllb, opus, pack_argos
    from marian_models import write_opus_npz

    opus(folder / "opus-mt-en-es")
    nllb(folder / "nllb")
    opus(folder / "unnamed", languages=("fra", "spa", "por"))
    write_opus_npz(folder)
    (folder / "pieces").mkdir()
    for side, name in (("source", "en"), ("target", "roa")):
        (folder / f"unnamed/{side}.spm").rename(folder / f"pieces/{name}.bin")
    argos(folder / "argos")
    pack_argos(folder / "argos", folder / "en_es.argosmodel")
    shutil.rmtree(folder / "argos")
    write_table(folder / "articles.parquet", id=["a", "b"], body=ENGLISH[:2])
    write_table(folder / "mixed.parquet", text=ENGLISH[:3], lang=["es", "fra_Latn", "tlh"])
    write_text(folder / "text.en", ENGLISH[:5])
    write_text(folder / "reference.es", SPANISH[:5])
    patch = request.getfixturevalue("monkeypatch")
    patch.setenv("HF_ENDPOINT", request.getfixturevalue("hub_url"))
    patch.setenv("HF_HOME", str(folder / ".huggingface"))
    patch.setenv("HF_HUB_DISABLE_XET", "1")


@pytest.fixture(scope="module")
def hub_url(tmp_path_factory):
    """The address of a stand-in for the hub of Hugging Face."""
    name = "Helsinki-NLP/opus-mt-en-es"
    with running_hub() as hub:
        hub.models[name] = write_marian(tmp_path_factory.mktemp("hub") / "opus-mt-en-es")
        yield hub.url


def prepare_look(folder, request):
    shutil.copytree(request.getfixturevalue("dataset"), folder / "dataset")
    run = request.getfixturevalue("trained_toy").run
    for name in ("run", "other-run"):
        shutil.copytree(run, folder / name)
    write_table(folder / "in.parquet", text=[source for source, _ in toy_sentences(6, seed=3)])
    translate(folder / "in.parquet", folder / "translated", text_columns=("text",))


def prepare_quickstart(folder, request):
    prepare_readme(folder, request)
    (folder / "pairs.tsv").unlink()
    demo = folder / "demo"
    prepare_run(demo, request)
    write_table(demo / "input.parquet", text=[source for source, _ in toy_sentences(6, seed=3)])
    translate(demo / "input.parquet", demo / "translated", text_columns=("text",))


def prepare_ted(folder, request):
    """Write a dataset in the form in which TFDS prepares it."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def split(number, count):
        english = [source for source, _ in pairs_of(number, count)]
        russian = [text.translate(_AS_CYRILLIC) for text in english]
        return tf.data.Dataset.from_tensor_slices({"en": english, "ru": russian})

    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        name="ted_hrlr_translate", config="ru_to_en", version="1.0.0", data_dir=folder / "tfds",
        features=tfds.features.Translation(languages=("ru", "en")),
        split_datasets={"train": split(1, 50), "validation": split(2, 5), "test": split(3, 5)},
    )  # fmt: skip


_AS_CYRILLIC = str.maketrans({chr(97 + i): chr(0x430 + i) for i in range(26)})
_AS_HAN = str.maketrans({chr(97 + i): chr(0x4E00 + i) for i in range(26)} | {" ": ""})


def prepare_news(folder, request):
    def pairs(number, count):
        found = [source.lower() for source, _ in pairs_of(number, count)]
        return [(text, text.translate(_AS_HAN)) for text in found]

    write_text(folder / "news.tsv.gz", ["\t".join(pair) for pair in pairs(1, 50)])
    english, chinese = zip(*pairs(2, 5), strict=True)
    write_text(folder / "test.en", english)
    write_text(folder / "test.zh", chinese)


def prepare_lakehouse(folder, request):
    prepare_run(folder, request)
    sources = [source for source, _ in toy_sentences(6, seed=3)]
    table = pa.table({"id": [1, 2], "title": ["two one", "three two"]})
    write_deltalake(folder / "products", table)
    write_table(folder / "articles/a.parquet", body=sources)
    (folder / "warehouse").mkdir()
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
    catalog = SqlCatalog("lake", **properties)
    catalog.create_namespace("shop")
    catalog.create_table("shop.products", schema=table.schema).append(table)


def prepare_corpus(folder, request):
    sources, targets = zip(*pairs_of(1), strict=True)
    write_table(folder / "pairs.parquet", en=sources, de=targets)
    write_pair(folder, "test", pairs_of(2, 5))
    write_table(folder / "articles.parquet", id=["a", "b"], body=["two one", "one. two."])


def prepare_fine_tuning(folder, request):
    shutil.copytree(request.getfixturevalue("trained_toy").run, folder / "run")
    write_text(folder / "manuals.tsv", map("\t".join, toy_sentences(60, seed=11)))
    write_text(folder / "general.tsv.gz", map("\t".join, toy_sentences(200, seed=12)))
    write_pair(folder, "test", toy_sentences(5, seed=13))
    write_pair(folder, "general", toy_sentences(5, seed=14))


def prepare_noisy(folder, request):
    """Write real web pairs whose few characters fit into a tiny vocabulary."""
    path = request.getfixturevalue("shared_data") / "messy/web_en_de.labelled.tsv.gz"
    rows = [
        line.split("\t")[:2] for line in gzip.decompress(path.read_bytes()).decode().split("\n")
    ]
    plain = re.compile(r"[a-zA-ZäöüßÄÖÜ .,-]+")
    kept = ["\t".join(row) for row in rows if len(row) == 2 and all(map(plain.fullmatch, row))]
    write_text(folder / "web.tsv.gz", kept)


PREPARE = {
    "README.md": prepare_readme,
    "docs/concepts/folders.md": prepare_readme,
    "docs/concepts/quality.md": prepare_readme,
    "docs/concepts/resuming.md": prepare_readme,
    "docs/concepts/text.md": prepare_translate,
    "docs/how-to/back-translation.md": prepare_back_translation,
    "docs/how-to/beam.md": prepare_run,
    "docs/how-to/columns.md": prepare_columns,
    "docs/how-to/corpora.md": prepare_preprocess,
    "docs/how-to/evaluate.md": prepare_evaluate,
    "docs/how-to/inspect.md": prepare_look,
    "docs/how-to/lakehouse.md": prepare_lakehouse,
    "docs/how-to/memory.md": prepare_translate,
    "docs/how-to/models.md": prepare_models,
    "docs/how-to/recurring.md": prepare_recurring,
    "docs/how-to/tables.md": prepare_translate,
    "docs/how-to/train.md": prepare_train,
    "docs/index.md": prepare_readme,
    "docs/quickstart.md": prepare_quickstart,
    "docs/reference/columns.md": prepare_translate,
    "docs/reference/configuration.md": prepare_readme,
    "docs/reference/exit-codes.md": prepare_nothing,
    "docs/reference/formats.md": prepare_dataset,
    "docs/reference/python.md": prepare_readme,
    "docs/reference/rejections.md": prepare_preprocess,
    "docs/tutorials/corpus.md": prepare_corpus,
    "docs/tutorials/daily.md": prepare_daily,
    "docs/tutorials/fine-tuning.md": prepare_fine_tuning,
    "docs/tutorials/gpus.md": prepare_dataset,
    "docs/tutorials/news.md": prepare_news,
    "docs/tutorials/noisy.md": prepare_noisy,
    "docs/tutorials/opus-mt.md": prepare_models,
    "docs/tutorials/ted.md": prepare_ted,
}


# Running.


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Yield a folder for the PATH, whose `tt` runs commands in children of a loaded process."""
    folder = tmp_path_factory.mktemp("bin")
    socket = folder / "socket"
    added = {command: flags.split() for command, flags in ADDED.items()}
    server = subprocess.Popen(
        [sys.executable, SUPPORT / "tt_server.py", socket, json.dumps(added)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert server.stdout.readline() == b"ready\n"
        client = f'exec {sys.executable} -IS {SUPPORT / "tt_client.py"} {socket} "$@"'
        (folder / "tt").write_text(f"#!/bin/sh\n{client}\n")
        (folder / "tt").chmod(0o755)
        yield folder
    finally:
        server.stdin.close()  # ends the server
        server.wait(60)


def run_script(text, *, folder, commands):
    """Run a block as if a user pasted it into a shell; return the exit code and the output."""
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": path, "XDG_CACHE_HOME": str(folder / ".cache")},
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = script.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(script.pid, signal.SIGKILL)
        raise
    return script.returncode, printed.decode()


@pytest.mark.parametrize("document", RUN)
def test_the_blocks_of_a_document_run_one_after_the_other(document, tmp_path, request, commands):
    folder = tmp_path / "first"
    PREPARE[document](folder, request)
    for block in SHELL:
        if block.document == document and not block.not_run:
            if block.is_elsewhere:
                folder = tmp_path / str(block.line)
                PREPARE[document](folder, request)
            code, printed = run_script(block.text, folder=folder, commands=commands)
            assert code == 0, f"{block} ends with {code}:\n{block.text}\n{printed}"
            assert "Traceback" not in printed, f"{block}:\n{printed}"


def test_the_client_passes_pipes_exit_codes_folders_and_added_options(tmp_path, commands):
    (tmp_path / "there").mkdir()
    text = "cd there; tt evaluate - --reference <(echo one two) < <(echo one two); tt no-such-thing"
    code, printed = run_script(text, folder=tmp_path, commands=commands)
    assert "BLEU" in printed
    assert code == 2
    text = "echo 'spam: 1' > there/a.yaml; tt preprocess --config there/a.yaml | cat; echo not here"
    code, printed = run_script(text, folder=tmp_path, commands=commands)
    assert (code, "not here" in printed) == (2, False)
    assert "spam" in printed
    write_pair(tmp_path, "a", pairs_of(1))
    code, printed = run_script("tt preprocess a.en+a.de", folder=tmp_path, commands=commands)
    assert code == 0
    size = DatasetManifest.load(tmp_path / "dataset").source_vocabulary_size
    assert size == 96, "the added 90, rounded up to a multiple of 8"


# These replacements shorten the Python blocks: a vocabulary of 50 pairs, a training of seconds, and
# the toy model in place of a model that was trained for seconds.
SHORTENED = {
    # The files of the test contain Spanish texts.
    'target_language="de")\nmanifest': 'target_language="es", vocabulary_size=96)\nmanifest',
    'output="other")': 'output="other", vocabulary_size=96)',
    'ModelLoader("run")': "ModelLoader(str(toy))",
    '{"steps": 20_000}': '{"steps": 2, "batch_tokens": 512, "score_every": 0}',
}
PYTHON = sorted({block.document for block in BLOCKS if block.language == "python"})


def run_python(document, names, capsys):
    """Run the Python blocks of a document as in a notebook, and compare the printed lines."""
    printed = []
    for block in (each for each in BLOCKS if each.document == document):
        if block.language == "python":
            text = block.text
            for written, run in SHORTENED.items():
                text = text.replace(written, run)
            exec(compile(text, str(block), "exec"), names)
            printed = capsys.readouterr().out.splitlines()
            for line in re.findall(r"print\(\w+\)  # (.*)", text):
                assert line in printed
        elif block.language == "text" and printed:
            assert block.text.splitlines() == printed, str(block)


@pytest.mark.slow
@pytest.mark.parametrize("document", PYTHON)
def test_the_python_blocks_of_a_document_run(
    document, tmp_path, request, shallow_presets, monkeypatch, capsys, trained_toy
):
    folder = tmp_path / "folder"
    PREPARE[document](folder, request)
    monkeypatch.chdir(folder)
    names = {"toy": trained_toy.run}
    run_python(document, names, capsys)
    if document == "docs/reference/python.md":
        assert names["model"] == "run/model"
        assert names["manifest"].pairs_kept == 50
        assert names["summary"].rows == 2
        assert {each.status for each in names["found"].translations} <= {"ok", "incomplete"}
        assert len(names["found"].translations) == 2


def test_every_replacement_occurs_in_the_python_blocks():
    text = "".join(block.text for block in BLOCKS if block.language == "python")
    assert all(written in text for written in SHORTENED)
