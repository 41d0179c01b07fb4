"""The text of a `tt.yaml`: a section for each command, with the reasons of what is guessed."""

from __future__ import annotations

import functools
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from model.formats.argos import SUFFIX as PACKAGE
from pipelines.flags.languages import is_language
from pipelines.summaries.project import (
    TEST,
    TRAIN,
    VALIDATION,
    Project,
    Table,
    TextFiles,
    pair_columns,
)

FILE = "tt.yaml"
_WIDTH = 100
_DATASET, _RUN, _TRANSLATED = "dataset", "run", "translated"
_HELD_OUT = (VALIDATION, TEST)

# Options that are often wanted, with a value to begin with: they stand there as comments.
OFTEN_WANTED: Mapping[str, Mapping[str, Any]] = {
    "preprocess": {"vocabulary_size": 8000, "max_tokens": 256, "deduplicate": "pair"},
    "train": {"preset": "small", "steps": 20_000, "batch_tokens": 4096, "patience": 5},
    "translate-batch": {"limit": 1000, "beam_size": 4, "engine": "ctranslate2"},
}


class ProjectFile(NamedTuple):
    """The file for what lies in a folder."""

    text: str
    commands: list[str]  # those that run with it as it is


def write_sections(project: Project, *, helps: Mapping[str, Mapping[str, str]]) -> ProjectFile:
    """Returns the file for what lies in a folder, and the commands that it is enough for.

    Args:
      project: What lies there.
      helps: The help of options by their keys, by command.
    """
    lines = _Lines(helps)
    lines.comment(
        "Options of tt, a section for each command. They are read by --config: "
        f"tt preprocess --config {FILE}, tt train --config {FILE}, tt translate-batch --config "
        f"{FILE}. Keys are the names of flags; what stands on the command line wins. What was "
        "guessed says so.",
        indent="",
    )
    corpora = [table for table in project.tables if table.pair and table.use == TRAIN]
    texts = [each for each in project.texts if each.use == TRAIN]
    has_corpus = bool(texts or corpora)
    is_empty = not (has_corpus or project.datasets or project.models)
    commands = []
    if has_corpus or is_empty:
        _preprocess(lines, project, texts=texts, corpora=corpora)
        commands.append("preprocess")
    trains = bool(has_corpus or is_empty or project.datasets)
    if trains:
        _train(lines, project, makes_dataset=has_corpus or is_empty)
        commands.append("train")
    if _translate(lines, project, trains=trains, source=_known_source(project, texts, corpora)):
        commands.append("translate-batch")
    return ProjectFile(lines.text(), commands)


class _Lines:
    def __init__(self, helps: Mapping[str, Mapping[str, str]]) -> None:
        self._helps = helps
        self._lines: list[str] = []

    def section(self, command: str) -> None:
        self._lines += ["", f"{command}:"]

    def comment(self, text: str, *, indent: str = "  ") -> None:
        self._lines += textwrap.wrap(
            text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip

    def option(self, key: str, value: Any, note: str = "", *, is_comment: bool = False) -> None:
        if note:
            self.comment(note)
        self._lines.append(f"  {'# ' if is_comment else ''}{key}: {_show(value)}")

    def often_wanted(self, command: str) -> None:
        for key, value in OFTEN_WANTED[command].items():
            self.comment(self._helps[command][key])
            self._lines.append(f"  # {key}: {_show(value)}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _show(value: Any) -> str:
    """Writes a value as YAML reads it back.

    >>> _show("no"), _show(["a.en", "b: c", "@data.en"]), _show(0.1)
    ('"no"', '[a.en, "b: c", "@data.en"]', '0.1')
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    is_word = re.match(r"[\w./]", value) and not set(value) & set(",[]{}#\"'\n\t")
    is_plain = is_word and ": " not in value and yaml.safe_load(value) == value
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _preprocess(
    lines: _Lines, project: Project, *, texts: list[TextFiles], corpora: list[Table]
) -> None:
    lines.section("preprocess")
    if not texts and not corpora:
        lines.comment(
            "No corpus lies here (two files such as train.en and train.de, TSV, or JSONL or "
            "Parquet with the columns en and de), so this uses the embedded English-Spanish one. "
            "To name yours:"
        )
        lines.comment("source: [train.en]")
        lines.comment("target: [train.de]")
        lines.comment("corpora: [pairs.tsv:0:1]")
    if texts:
        lines.option(
            "source", [each.source for each in texts],
            "Line-aligned texts, by their names. Which side is the source is a guess: to translate "
            "in the other direction, exchange source and target, and the languages.",
        )  # fmt: skip
        lines.option("target", [each.target for each in texts])
    if others := [name for each in texts for name in each.others]:
        lines.comment(f"Left out, as one dataset has two languages: {', '.join(others)}.")
    if corpora:
        lines.option(
            "corpora", [each.corpus for each in corpora],
            "A pair a row, with the columns of source and target (names, or numbers from 0), which "
            "are a guess. In the other direction, exchange them, and the languages.",
        )  # fmt: skip
    if headings := [each.path for each in corpora if each.headings]:
        lines.comment(f"The first line names columns and becomes a pair: {', '.join(headings)}.")
    for name in project.undecided:
        lines.comment(f"What {name} holds cannot be told. If it has pairs, with their columns:")
        lines.comment(f"corpora: [{_show(f'{name}:0:1')}]")
    if unread := [each.path for each in project.tables if not each.pair and _seems_corpus(each)]:
        lines.comment(
            f"With columns of two languages, but of a format that preprocess does not read, which "
            f"reads TSV, JSONL and Parquet: {', '.join(unread)}."
        )
    _languages(lines, texts, corpora)
    _held_out(lines, project, has_corpus=bool(texts or corpora))
    there = f" There is one already: {', '.join(project.datasets)}." if project.datasets else ""
    lines.option("output", _DATASET, f"Folder to write.{there}")
    lines.often_wanted("preprocess")


def _seems_corpus(table: Table) -> bool:
    return pair_columns(list(table.text_columns)) is not None


def _held_out(lines: _Lines, project: Project, *, has_corpus: bool) -> None:
    """Names the texts and tables of pairs that are for validation and tests.

    Those of no corpus are comments: the embedded one has its own, and takes no others.
    """
    option = functools.partial(lines.option, is_comment=not has_corpus)
    texts = {use: [each for each in project.texts if each.use == use] for use in _HELD_OUT}
    tables = {
        use: [each for each in project.tables if each.pair and each.use == use] for use in _HELD_OUT
    }
    why = "Validation pairs, by their names."
    if not has_corpus:
        why += " They can be used once your corpus is named."
    if found := texts[VALIDATION]:
        option("validation_source", [each.source for each in found], why)
        option("validation_target", [each.target for each in found])
        why = ""
    if tables[VALIDATION]:
        option("validation", [each.corpus for each in tables[VALIDATION]], why)
    if found := texts[TEST]:
        option("exclude", [name for each in found for name in (each.source, each.target)],
               "Test texts, by their names, which training must not see.")  # fmt: skip
    if tables[TEST]:
        names = ", ".join(each.path for each in tables[TEST])
        lines.comment(
            f"Test pairs, by their names, which are left out: {names}. For training not to see "
            "their texts elsewhere, write these to files, a text a line, and name them:"
        )
        lines.comment("exclude: [test.source, test.target]")


def _languages(lines: _Lines, texts: list[TextFiles], corpora: list[Table]) -> None:
    found = [(each.source_language, each.target_language) for each in texts if each.source_language]
    found += [each.languages for each in corpora if any(each.languages)]
    if len(set(found)) == 1:
        [(source, target)] = set(found)
        is_told = len(found) == len(texts) + len(corpora)
        why = "Languages, by the same names." if is_told else "Languages, by the names of some."
        lines.option("source_language", source, why)
        lines.option("target_language", target)
        return
    if found:
        told = ", ".join(sorted({f"{source} to {target}" for source, target in found}))
        lines.comment(f"The names tell several pairs of languages ({told}): keep those of one.")
    if texts or corpora:
        lines.comment("Codes of the languages: they tell the scripts that texts must be in.")
        lines.comment("source_language: en")
        lines.comment("target_language: de")


def _train(lines: _Lines, project: Project, *, makes_dataset: bool) -> None:
    lines.section("train")
    if makes_dataset:
        lines.option("dataset", _DATASET, "What preprocess writes.")
    else:
        others = project.datasets[1:]
        more = f" There are others: {', '.join(others)}." if others else ""
        lines.option("dataset", project.datasets[0], f"The dataset folder that lies here.{more}")
    lines.option("run", _RUN, "Folder to write; the same command goes on from where it ended.")
    if others := [name for name in project.models if name != _RUN and not name.endswith(PACKAGE)]:
        lines.comment(
            "To begin with a model that lies here, whose vocabulary the dataset must have:"
        )
        lines.comment(f"init_from: {_show(others[0])}")
    lines.comment("Model and steps are chosen by the dataset's size, unless you set them:")
    lines.often_wanted("train")


class _KnownSource(NamedTuple):
    language: str
    of: str  # what has it, in words


def _known_source(
    project: Project, texts: list[TextFiles], corpora: list[Table]
) -> _KnownSource | None:
    """Returns the language that texts are translated from, if names or what lies there tell it."""
    if texts or corpora:
        found = {each.source_language for each in texts} | {each.languages[0] for each in corpora}
        if len(told := found - {""}) == 1:
            return _KnownSource(told.pop(), "the corpus's source")
        if told:
            return None
    for name in (*project.datasets, *project.models):
        if language := project.source_languages.get(name, ""):
            return _KnownSource(language, f"the source of {name}")
    return None


def _text_column(table: Table, source: _KnownSource | None) -> tuple[str, str]:
    """Returns the column of the longest texts, of those in the source language if any are; why."""
    column, why = table.text_columns[0], "The column of the longest texts"
    if source is not None:
        found = table.seem_to_be_in
        own = [
            name
            for name in table.text_columns
            if is_language(found.get(name, ""), code=source.language)
        ]
        if own:
            column = own[0]
            why = f"Its texts seem to be in {source.language}, as {source.of}"
        if len(own) > 1:
            why = f"The column of the longest texts in {source.language}, as {source.of}"
    rest = ", ".join(name for name in table.text_columns if name != column)
    return column, f"{why}; others have texts, too: {rest}." if rest else ""


def _translate(
    lines: _Lines, project: Project, *, trains: bool, source: _KnownSource | None
) -> bool:
    """Writes the section of translate-batch; returns whether it names a table."""
    has_table = True
    lines.section("translate-batch")
    tables = sorted((table for table in project.tables if not table.pair), key=_seems_corpus)
    if tables:
        table = tables[0]
        more = "".join(f", {each.path}" for each in tables[1:])
        rows = "" if table.rows is None else f" ({table.rows:,} rows)"
        lines.option(
            "input", [table.path],
            f"A table with columns of texts{rows}"
            + (f"; others lie here: {more[2:]}." if more else "."),
        )  # fmt: skip
        column, why = _text_column(table, source)
        lines.option("text_column", [column], why)
    elif corpora := [table for table in project.tables if table.pair and not _is_tsv(table)]:
        pair = corpora[0].pair or ("", "")
        lines.option(
            "input", [corpora[0].path],
            "No other table lies here, so that the corpus stands for it: name yours.",
        )  # fmt: skip
        lines.option("text_column", [pair[0]])
    elif not (project.texts or project.tables or project.datasets or project.models):
        lines.option("input", ["input.parquet"],
                     "Sentences that preprocess leaves out of the embedded corpus.")  # fmt: skip
    else:
        has_table = False
        lines.comment("No table lies here: name Parquet, CSV or JSONL, and the column of texts.")
        lines.comment("input: [articles.parquet]")
        lines.comment("text_column: [body]")
    if trains:
        lines.option("model", _RUN, "What train writes.")
    elif project.models:
        others = project.models[1:]
        more = f" There are others: {', '.join(others)}." if others else ""
        lines.option("model", project.models[0], f"The run or model that lies here.{more}")
    there = f" There is one already: {', '.join(project.translated)}." if project.translated else ""
    lines.option("output", _TRANSLATED, f"Folder to write.{there}")
    lines.often_wanted("translate-batch")
    return has_table


def _is_tsv(table: Table) -> bool:
    """Says whether the columns of a corpus have numbers: then translate-batch knows no names."""
    return all(column.isdigit() for column in table.pair or ())
