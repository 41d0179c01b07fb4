"""Small corpora, and functions to preprocess them and to read the datasets."""

import hashlib
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from toy import parse_record

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.text.spans import Protection
from tt.model.text.vocabulary import load_vocabularies
from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.job import PreprocessJob
from tt.pipelines.preprocess.naming import CorpusOptions
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import TextPair, Tsv

ONE_THREAD = ["--direct_num_workers=1"]
TWO_THREADS = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]

# These corpora are not a real language, so most filters are off.
OPEN_FILTERS = {
    "max_length_ratio": 0.0, "min_letters": 0.0, "reject_identical": False,
    "reject_mojibake": False,
}  # fmt: skip


def sentence(number):
    """Return three words of the letters 0 to f, without protected text in either direction."""
    for attempt in itertools.count():
        letters = hashlib.md5(f"{number}{' again' * attempt}".encode()).hexdigest()
        words = f"{letters[:4]} {letters[4:7]} {letters[7:12]}"
        if not any(map(Protection().find, (words, words[::-1]))):
            break
    return words


# Sentences whose languages can be detected.
NOUNS = ["man", "dog", "boy", "girl", "bird", "house", "cat"]
ENGLISH = [f"The {a} and the {b} were at the {c}." for a in NOUNS for b in NOUNS for c in NOUNS]
GERMAN = [f"Das {a} und der {b} sind bei dem {c}." for a in NOUNS for b in NOUNS for c in NOUNS]

PAIRS = [(sentence(i), sentence(i)[::-1]) for i in range(400)]


def write_pairs(folder, pairs, *, name="corpus"):
    paths = [folder / f"{name}.en", folder / f"{name}.de"]
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), newline="\n")
    return TextPair(*map(str, paths))


def write_tsv(path, sources, targets):
    """Write a TSV corpus, and return it as a source."""
    lines = [f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True)]
    path.write_text("".join(lines), "utf-8")
    return Tsv(str(path))


def open_named(*, corpora=(), source_texts=(), target_texts=(), **options):
    """Open corpora, with the fields of `CorpusOptions` by name."""
    return open_corpora(
        corpora, CorpusOptions(**options), source_texts=source_texts, target_texts=target_texts
    )


def preprocess(*, beam_arguments=(), **given):
    """Create the dataset for sources and options; see `plan_preprocess`."""
    return run_preprocess(plan_preprocess(**given), beam_arguments=beam_arguments)


def run_preprocess(plan, *, beam_arguments=()):
    """Create the dataset of a plan."""
    return PreprocessJob(plan=plan, beam_arguments=beam_arguments).run()


def options(output, *, filters=None, **changes):
    values = {"output": str(output), "vocabulary_size": 48, "shards": 3}
    # The sides of most test pairs share words with digits, which few tests are about.
    values["placeholder_share"] = 0
    if changes.get("vocabulary"):
        del values["vocabulary_size"]
    chosen = Filters(**(OPEN_FILTERS | (filters or {})))
    return PreprocessOptions(**(values | changes), filters=chosen)


def examples(folder, split):
    """Read the serialized records of a split with TensorFlow."""
    manifest = DatasetManifest.load(folder)
    paths = [str(Path(folder) / name) for name in manifest.splits[split].shards]
    return [record.numpy() for record in tf.data.TFRecordDataset(paths)]


def records(folder, split):
    """Read a split as pairs of ids."""
    return [parse_record(example) for example in examples(folder, split)]


def texts(folder, split):
    """Read a split as pairs of decoded texts."""
    vocabularies = load_vocabularies(folder)
    sources, targets = zip(*records(folder, split), strict=True)
    return list(
        zip(
            vocabularies.source.decode(list(sources)),
            vocabularies.target.decode(list(targets)),
            strict=True,
        )
    )


def rejected(folder):
    tables = [pq.read_table(path) for path in sorted(Path(folder).glob("rejected-*.parquet"))]
    return pa.concat_tables(tables).to_pylist() if tables else []


def digest(folder):
    """Return the hash of each file of a dataset, except the manifest."""
    found = sorted(path for path in Path(folder).iterdir() if path.name != MANIFEST_FILE)
    assert found
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in found}
