"""Ready-made corpora: the embedded English-Spanish corpus, and corpora of TensorFlow Datasets.

`english_spanish_train.tsv.gz` has 28,800 pairs, of which the last 4,800 contain variables, tags,
prices and the like. `english_spanish_held_out.tsv` has 400 pairs. A grammar generated all pairs.
Held-out pairs use words of the training pairs, but none of their (subject, verb, object) triples.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from tt.model.errors import UserError, first_line
from tt.model.storage import listing
from tt.pipelines.preprocess import sources
from tt.pipelines.preprocess.naming import CorpusOptions, CorpusSpec
from tt.pipelines.preprocess.sources import (
    Source,
    decode_lines,
    row_table,
)
from tt.pipelines.tables.pieces import even_sizes

_FOLDER = Path(__file__).parent
_FIRST_ROWS = 100  # the rows in which a dry run looks for a pair


class HeldOutPair(NamedTuple):
    """A held-out pair, with a word-for-word translation by a lexicon as a baseline."""

    source: str
    target: str
    word_for_word: str


@functools.cache
def train_pairs() -> tuple[tuple[str, str], ...]:
    """Return the training pairs."""
    text = gzip.decompress((_FOLDER / "english_spanish_train.tsv.gz").read_bytes()).decode()
    pairs = (line.split("\t") for line in text.splitlines())
    return tuple((source, target) for source, target in pairs)


@functools.cache
def held_out_pairs() -> tuple[HeldOutPair, ...]:
    """Return the held-out pairs."""
    text = (_FOLDER / "english_spanish_held_out.tsv").read_text("utf-8")
    return tuple(HeldOutPair(*line.split("\t")) for line in text.splitlines())


@dataclasses.dataclass(frozen=True)
class EmbeddedCorpus(Source):
    """The training pairs of the embedded corpus."""

    kind: ClassVar[str] = "embedded"
    name: ClassVar[str] = "embedded:train"

    def identity(self) -> dict[str, Any]:
        """Return values that change with the corpus."""
        text = "\n".join(f"{source}\t{target}" for source, target in train_pairs())
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [],
            "columns": [],
            "text": hashlib.sha256(text.encode()).hexdigest(),
        }

    def text_bytes(self) -> int:
        """Return about how many bytes of text the source contains."""
        return sum(len(source) + len(target) for source, target in train_pairs())

    def describe(self) -> str:
        """Return a line about the source: kind, name, size and pairs."""
        return self._describe(where=self.name, size=self.text_bytes(), pairs=len(train_pairs()))

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int]:
        """Return the number of rows of each read. All texts are short."""
        return even_sizes(total=len(train_pairs()), most=max_pairs)

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of consecutive rows."""
        sources, targets = zip(*train_pairs()[first_row : first_row + rows], strict=True)
        yield row_table(pa.array(sources, pa.large_string()), pa.array(targets, pa.large_string()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsPairs(Source):
    """A split of a translation dataset of TensorFlow Datasets."""

    kind: ClassVar[str] = "tfds"

    dataset: str  # NAME/CONFIG, such as "ted_hrlr_translate/ru_to_en"
    split: str  # in TFDS's syntax, such as "train[:70%]"
    directory: str  # folder of the prepared dataset: `<data_dir>/<name>/<config>/<version>`
    source_language: str  # feature with the source texts
    target_language: str  # feature with the target texts
    given_name: str = ""  # the name that the user gave the corpus, or ""

    @property
    def name(self) -> str:
        """The given name, or else the names of the dataset and the split."""
        return self.given_name or f"tfds:{self.dataset}:{self.split}"

    def _split_info(self) -> Any:
        return _tfds_builder(self.directory).info.splits[self.split]

    def _paths(self) -> list[str]:
        return [os.fspath(path) for path in self._split_info().filepaths]

    def identity(self) -> dict[str, Any]:
        """Return values that change with the dataset."""
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [listing.file_identity(path) for path in self._paths()],
            "columns": [self.source_language, self.target_language],
            "dataset": self.dataset,
            "split": self.split,
            "directory": self.directory,
        }

    def text_bytes(self) -> int:
        """Estimate the bytes of text by the size of the files, and the share of their rows."""
        info = self._split_info()
        return sum(
            listing.file_identity(os.fspath(path))["bytes"] * part.take // part.examples_in_shard
            for path, part in zip(info.filepaths, info.file_instructions, strict=True)
        )

    def describe(self) -> str:
        """Return a line about the source: kind, name, size and pairs."""
        return self._describe(
            where=f"tfds:{self.dataset}:{self.split}",
            size=self.text_bytes(),
            pairs=self._split_info().num_examples,
        )

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int]:
        """Return the number of rows of each read."""
        most = self._rows_within(max_bytes, most=max_pairs)
        return even_sizes(total=self._split_info().num_examples, most=most)

    def first_rows(self) -> pa.Table | None:
        """Return a table of the first rows; None if there are no rows."""
        rows = min(_FIRST_ROWS, self._split_info().num_examples)
        return next(self.read_rows(first_row=0, rows=rows), None)

    def _rows_within(self, limit: int, *, most: int) -> int:
        fitting = limit * int(self._split_info().num_examples) // max(1, self.text_bytes())
        return max(1, min(most, fitting))

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Read a run of consecutive rows."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        builder = _tfds_builder(self.directory)
        slice_rows = self._rows_within(sources.SLICE_BYTES, most=sources.SLICE_PAIRS)
        # TFDS must read one file after the other, so that rows keep their order and numbers.
        order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        for instruction in _tfds_ranges(builder, self.split, first_row, rows):
            data = builder.as_dataset(split=instruction, read_config=order, shuffle_files=False)
            with tf.device("cpu"):
                for batch in data.batch(slice_rows).as_numpy_iterator():
                    yield decode_lines(
                        batch[self.source_language].tolist(), batch[self.target_language].tolist()
                    )


def _tfds_builder(directory: str) -> Any:
    import tensorflow_datasets as tfds

    return tfds.builder_from_directory(directory)


def _tfds_ranges(builder: Any, split: str, first_row: int, rows: int) -> Iterator[Any]:
    """Convert a run of rows of any split to TFDS's absolute instructions, one per part."""
    import tensorflow_datasets as tfds

    position = 0
    instruction = tfds.core.ReadInstruction.from_spec(split)
    for part in instruction.to_absolute(builder.info.splits):
        begin = part.from_ or 0
        end = builder.info.splits[part.splitname].num_examples if part.to is None else part.to
        low = max(first_row - position, 0)
        high = min(first_row + rows - position, end - begin)
        position += end - begin
        if low < high:
            yield tfds.core.ReadInstruction(
                part.splitname, from_=begin + low, to=begin + high, unit="abs"
            )


def open_tfds(spec: CorpusSpec, options: CorpusOptions) -> TfdsPairs:
    """Open a prepared dataset, or prepare it if `options.download` is true.

    Raises:
      UserError: The dataset is missing or incomplete, or has no such split or language.
    """
    name, split = spec.paths[0], options.split
    source_language = spec.source_column or options.source_language
    target_language = spec.target_column or options.target_language
    builder = (_prepare_tfds if options.download else _find_tfds)(name, options)
    languages = _tfds_languages(name, builder)
    keys = builder.info.supervised_keys
    ordered = list(keys) if keys and set(keys) <= set(languages) else languages
    for language in (source_language, target_language):
        if language and language not in languages:
            raise UserError(
                f"tfds:{name} has no language {language!r}. Choose {' or '.join(languages)}"
            )
    source = source_language or next(x for x in ordered if x != target_language)
    target = target_language or next(x for x in ordered if x != source)
    if source == target:
        raise UserError(
            f"tfds:{name} needs two different languages. Received: {source!r} for both sides"
        )
    try:
        info = builder.info.splits[split]
        paths = [os.fspath(path) for path in info.filepaths]
    except ValueError as error:
        reason = first_line(error).rstrip(".")
        raise UserError(
            f"tfds:{name} cannot be read with `split` {split!r}: {reason}. Choose another `split`"
        ) from error
    missing = [path for path in paths if not listing.exists(path)]
    if missing:
        raise UserError(
            f"tfds:{name} is incomplete: {missing[0]} is missing. Prepare it again, or choose "
            "another `split`"
        )
    return TfdsPairs(
        dataset=name,
        split=split,
        directory=os.fspath(builder.data_dir),
        source_language=source,
        target_language=target,
        given_name=spec.name,
    )


def _tfds_languages(name: str, builder: Any) -> list[str]:
    import tensorflow_datasets as tfds

    found = builder.info.features
    texts = [
        key
        for key, feature in (found.items() if hasattr(found, "items") else ())
        if isinstance(feature, tfds.features.Text)
    ]
    if len(texts) < 2:
        raise UserError(
            f"tfds:{name} is not a translation dataset: its features are {found!r}. Choose a "
            "dataset with two texts"
        )
    return texts


def _find_tfds(name: str, options: CorpusOptions) -> Any:
    """Open a prepared dataset from its files, without network requests."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    wanted = name
    if options.language_pair and "/" not in name:
        chosen = f".{_subsets_name(options.subsets)}" if options.subsets else ""
        wanted = f"{name}/{options.language_pair}{chosen}"
    try:
        return read_only_builder.builder_from_files(wanted, data_dir=options.data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError, OSError) as error:
        folder = options.data_dir or tfds.core.constants.DATA_DIR
        raise UserError(
            f"tfds:{name} is not prepared in {folder}. Check the name, choose another `data_dir`, "
            "or set `download`"
        ) from error


def _prepare_tfds(name: str, options: CorpusOptions) -> Any:
    import tensorflow_datasets as tfds

    wmt = {}
    if options.language_pair:
        wmt["config"] = _wmt_config(options.language_pair, options.subsets)
    try:
        builder = tfds.builder(name, data_dir=options.data_dir, **wmt)
        builder.download_and_prepare()
    except Exception as error:
        reason = first_line(error).rstrip(".")
        raise UserError(
            f"tfds:{name} could not be downloaded and prepared: {reason}. Check the name, the "
            "network and the free disk space"
        ) from error
    return builder


def _wmt_config(language_pair: str, subsets: Sequence[str]) -> Any:
    import tensorflow_datasets as tfds

    languages = tuple(language_pair.split("-"))
    by_split: dict[str, list[str]] = {}
    for subset in subsets:
        split, _, wanted = subset.partition("=")
        if not split or wanted not in tfds.translate.wmt.DATASET_MAP:
            raise UserError(
                f"`subsets` must be SPLIT=NAME, such as train=newscommentary_v14. Received: "
                f"{subset!r}. Choose NAME from {', '.join(sorted(tfds.translate.wmt.DATASET_MAP))}"
            )
        by_split.setdefault(split, []).append(wanted)
    if len(languages) != 2 or not by_split:
        raise UserError(
            "wmt_translate needs `language_pair` as SOURCE-TARGET, and `subsets` as SPLIT=NAME. "
            f"Received: {language_pair!r} and {list(subsets)}"
        )
    # TFDS finds datasets by their name, so each choice of subsets needs its own name.
    return tfds.translate.wmt.WmtConfig(
        version="0.0.1", language_pair=languages, subsets=by_split, name=_subsets_name(subsets)
    )


def _subsets_name(subsets: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(subsets)).encode()).hexdigest()[:8]
