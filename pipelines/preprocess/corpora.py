"""Open corpora by their names, and list them in a file for the workers."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import glob
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tt.model.dataset.manifest import WEIGHT
from tt.model.errors import UserError, require_text
from tt.model.storage import files, listing
from tt.model.storage import paths as storage_paths
from tt.model.storage.listing import ListedFile
from tt.pipelines.preprocess.naming import CorpusOptions, CorpusSpec, parse_corpus
from tt.pipelines.preprocess.parquet_columns import ParquetColumns, choose_columns, open_columns
from tt.pipelines.preprocess.ready_made import EmbeddedCorpus, TfdsPairs, open_tfds
from tt.pipelines.preprocess.sources import (
    FileSource,
    Jsonl,
    Source,
    TableColumns,
    TextPair,
    Tsv,
)
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.finding import check_no_lake, is_skipped_name
from tt.pipelines.tables.reading import inspect_file


def open_corpora(
    names: Sequence[str],
    options: CorpusOptions | None = None,
    *,
    source_texts: Sequence[str] = (),
    target_texts: Sequence[str] = (),
    has_whole_paths: bool = False,
    unread: list[str] | None = None,
) -> list[Source]:
    """Open corpora by their names, and check them.

    Args:
      names: Corpora in the syntax of `parse_corpus`; each path may be a glob.
      options: Options for reading the corpora.
      source_texts: Text files or globs with one source sentence per line. These files come first
        in the result.
      target_texts: Text files or globs with the translations, in the same order.
      has_whole_paths: Whether to make local paths absolute, for workers that run in another
        folder.
      unread: A list that receives the files of folders that are not Parquet.

    Raises:
      UserError: A corpus does not exist, or does not fit the options.
    """
    options = options or CorpusOptions()
    encoding = options.encoding
    listed: dict[str, ListedFile] = {}  # listing entries of remote files, which save requests

    @functools.cache  # A look-up may send a request to a remote file system.
    def look_up(pattern: str) -> list[str]:
        paths = _look_up(pattern, listed)
        return [storage_paths.normalize_path(path) for path in paths] if has_whole_paths else paths

    pair_texts = functools.partial(_pair_texts, look_up=look_up, encoding=encoding)
    sources: list[Source] = pair_texts(source_texts, target_texts)
    for text in names:
        if not text.endswith("/"):
            _check_is_no_folder(text)
        spec = parse_corpus(
            text,
            exists=lambda path: storage_paths.is_known(path) and bool(look_up(path)),
            options=options,
        )
        if spec.kind == "tfds":
            sources.append(open_tfds(spec, options))
        elif spec.kind == "text":
            [source, target] = spec.paths
            sources += pair_texts([source], [target], given_name=spec.name)
        else:
            if spec.paths[0].endswith("/"):
                paths = _find_translated(spec.paths[0], look_up=look_up, listed=listed)
                if unread is not None:
                    inside = listing.list_with_links(spec.paths[0], is_skipped=is_skipped_name)
                    unread += {file.path for file in inside} - {*paths}
            else:
                paths = _find(spec.paths[0], look_up=look_up)
            remedy = "Write the current rows of the table to Parquet files, and choose these files"
            check_no_lake(spec.paths[0], paths, remedy=remedy)
            open_file = functools.partial(_open_file, spec, options, listed)
            with concurrent.futures.ThreadPoolExecutor(files.AT_ONCE) as pool:
                sources += pool.map(open_file, paths)  # Each thread waits for the file system.
    return [_with_listed(source, listed) for source in sources]


def _with_listed(source: Source, listed: Mapping[str, ListedFile]) -> Source:
    if not isinstance(source, FileSource) or isinstance(source, ParquetColumns):
        return source
    if listed.keys() >= set(source.paths()):
        known = tuple(listed[path] for path in source.paths())
        return dataclasses.replace(source, listed=known)
    return source


def _open_file(
    spec: CorpusSpec,
    options: CorpusOptions,
    listed: Mapping[str, ListedFile],
    path: str,
) -> Source:
    columns = (
        spec.source_column or options.source_column,
        spec.target_column or options.target_column,
    )
    fields: dict[str, Any] = {
        "given_name": spec.name,
        **{name: getattr(options, name) for name in ("encoding", "input_format", "delimiter")},
    }
    if spec.kind == "tsv":
        numbers = _column_number(columns[0], 0), _column_number(columns[1], 1)
        codes = (options.source_language, options.target_language)
        languages = tuple(code for code in codes if code)
        return Tsv(path, *numbers, languages=languages, **fields)
    plain = ("source", "target")
    names = (
        columns[0] or options.source_language or plain[0],
        columns[1] or options.target_language or plain[1],
    )
    # Languages have other purposes too, so a table need not have columns with these names.
    choices = [names] if any(columns) or names == plain else [names, plain]
    if listing.is_pipe_or_device(path):
        if spec.kind == "jsonl":
            return Jsonl(path, *names, **fields)
        raise UserError(
            f"{path} is a pipe or a device, from which tt reads only text, TSV and JSONL. Write "
            "the data to a file first"
        )
    are_in_name = spec.source_column is not None
    if spec.kind == "parquet":
        known = (listed[path],) if path in listed else ()
        return open_columns(
            path, choices, given_name=spec.name, listed=known, are_in_name=are_in_name
        )
    with with_remedy():
        contents = inspect_file(path, options=options)
    # A JSONL file may be empty, and the texts of keys that the user named may begin later.
    is_open = not contents.schema.names or (any(columns) and not contents.has_all_columns)
    if spec.kind != "jsonl" or not is_open:
        names = choose_columns(contents.schema, choices, path=path, are_in_name=are_in_name)
    return (Jsonl if spec.kind == "jsonl" else TableColumns)(path, *names, **fields)


def _pair_texts(
    source_patterns: Sequence[str],
    target_patterns: Sequence[str],
    *,
    look_up: Callable[[str], list[str]],
    encoding: str,
    given_name: str = "",
) -> list[Source]:
    source_paths, target_paths = list(source_patterns), list(target_patterns)
    if source_patterns and target_patterns:  # Otherwise the numbers below differ.
        source_paths = [path for each in source_patterns for path in _find(each, look_up=look_up)]
        target_paths = [path for each in target_patterns for path in _find(each, look_up=look_up)]
    if len(source_paths) != len(target_paths):
        raise UserError(
            "the number of `target` texts must equal the number of `source` texts. Received: "
            f"{len(source_paths)} `source` ({', '.join(source_paths) or 'none'}) and "
            f"{len(target_paths)} `target` ({', '.join(target_paths) or 'none'})"
        )
    return [
        TextPair(source_path, target_path, given_name=given_name, encoding=encoding)
        for source_path, target_path in zip(source_paths, target_paths, strict=True)
    ]


def _column_number(column: str | None, default: int) -> int:
    if column is None:
        return default
    if not re.fullmatch(r"[0-9]{1,6}", column):
        raise UserError(f"a TSV column must be a number, counted from 0. Received: {column!r}")
    return int(column)


def _find(pattern: str, *, look_up: Callable[[str], list[str]]) -> list[str]:
    _check_is_no_folder(pattern)
    found = look_up(pattern)
    if not found:
        _check_is_no_folder(pattern, is_local=False)
        storage_paths.check_searchable(pattern)
        raise UserError(f"no file matches {pattern}. Check the path")
    return found


def _find_translated(
    folder: str, *, look_up: Callable[[str], list[str]], listed: dict[str, ListedFile]
) -> list[str]:
    """Return the Parquet files in a folder, such as the output of `tt back-translate`.

    Raises:
      UserError: There are no Parquet files, or a translation job has not finished the folder.
    """
    pattern = glob.escape(folder) if Path(folder).is_dir() else folder
    job_file = f"{storage_paths.JOB_FOLDER}/*.json"
    if storage_paths.is_local(folder):
        there = [*look_up(f"{pattern}**/*.parquet"), *look_up(f"{pattern}**/{job_file}")]
    else:
        # Beam's globs would miss files directly in `folder`, because their ** matches at least one
        # folder.
        below = listing.list_files(folder)
        listed.update((each.path, each) for each in below if each.path.endswith(".parquet"))
        there = [each.path for each in below]
    started, finished = (
        {path.removesuffix(end) for path in there if path.endswith(end)}
        for end in (f"/{storage_paths.JOB_FOLDER}/{n}.json" for n in ("plan", "manifest"))
    )
    if unfinished := sorted(started - finished):
        raise UserError(
            f"{unfinished[0]} is incomplete. Run the command of its job again to finish it"
        )
    # Like `tt translate-batch`, skip files such as the log of a table.
    depth = folder.rstrip("/").count("/") + 1
    found = [
        path
        for path in there
        if path.endswith(".parquet") and not any(map(is_skipped_name, path.split("/")[depth:]))
    ]
    if not found:
        storage_paths.check_searchable(folder)
        raise UserError(f"no Parquet file found in {folder}. Check the path")
    return found


def _check_is_no_folder(path: str, *, is_local: bool = True) -> None:
    if storage_paths.is_local(path) is is_local and listing.is_folder(path):
        raise UserError(
            f"{path} is a folder. Choose the files in it, such as '{path.rstrip('/')}/*.tsv', or "
            f"{path.rstrip('/')}/ for all its Parquet files"
        )


def _look_up(pattern: str, listed: dict[str, ListedFile]) -> list[str]:
    """Return the sorted files that match a path or a glob.

    An existing path is not a glob, even if it contains `*`. The function also adds the listing
    entries of remote files to `listed`.

    Raises:
      UserError: A name is not UTF-8, or a link points to a missing file.
    """
    if not storage_paths.is_local(pattern):
        if re.search(r"[*?[]", pattern) and listing.exists(pattern):
            return [pattern]
        found_there = listing.find_listed(pattern)
        listed.update((file.path, file) for file in found_there)
        return [file.path for file in found_there]
    if os.path.lexists(pattern):
        files_found = [pattern]
    else:
        # Beam's globs find nothing for relative patterns, and walk the whole tree.
        found = glob.glob(pattern, recursive=True)  # noqa: PTH207
        files_found = sorted(path for path in found if not os.path.isdir(path))  # noqa: PTH112
    for path in files_found:
        require_text("a file name", path)
        if not os.path.exists(path):  # noqa: PTH110
            raise UserError(f"{path} is a link to a missing file. Replace or delete the link")
    return files_found


_KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (TextPair, Tsv, Jsonl, TableColumns, ParquetColumns, TfdsPairs, EmbeddedCorpus)
}


@dataclasses.dataclass(frozen=True)
class SourceList:
    """The sources of a run, listed in a file. Workers receive the file's path, not the list.

    Each process reads the file once, when it first needs a source.
    """

    path: str

    @staticmethod
    def text(
        sources: Iterable[Source], *, identities: Iterable[dict[str, Any]], groups: Iterable[int]
    ) -> str:
        """Return the content of the file: a JSON line per source, with its identity and group."""
        return "".join(
            json.dumps({"source": source.as_json(), "identity": identity, "group": group}) + "\n"
            for source, identity, group in zip(sources, identities, groups, strict=True)
        )

    def source(self, order: int) -> Source:
        """Return a new instance of the source at a position of the list."""
        values = self._line(order)["source"]
        source: Source = _KINDS[values.pop("kind")](**values)
        return source

    def identity(self, order: int) -> dict[str, Any]:
        """Return the identity of a source when the run was planned, including a weight below 1."""
        identity: dict[str, Any] = self._line(order)["identity"]
        return identity

    def names(self) -> tuple[str, ...]:
        """Return the names of all sources, in order."""
        return _read_names(self.path)

    def files(self, orders: Iterable[int]) -> list[dict[str, Any]]:
        """Return the identities of the files of some sources when the run was planned."""
        return [file for order in orders for file in self.identity(order)["files"]]

    def weight(self, order: int) -> float:
        """Return the share of a source's pairs to keep."""
        return float(self._line(order)["identity"].get(WEIGHT, 1))

    def groups(self) -> list[range]:
        """Return the positions of the sources in each group. One worker cuts a whole group."""
        lines = _read_lines(self.path)
        firsts = sorted({json.loads(line)["group"] for line in lines})
        return [range(a, b) for a, b in itertools.pairwise([*firsts, len(lines)])]

    def _line(self, order: int) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(_read_lines(self.path)[order])
        return line


@functools.lru_cache(maxsize=2)
def _read_lines(path: str) -> list[bytes]:
    return files.read_bytes(path).splitlines()


@functools.lru_cache(maxsize=2)
def _read_names(path: str) -> tuple[str, ...]:
    return tuple(str(json.loads(line)["identity"]["name"]) for line in _read_lines(path))
