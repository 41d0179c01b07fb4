"""Summary of a model folder: architecture, parameters, vocabularies, origin."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from tt.model.formats.foreign import (
    ForeignModel,
    is_foreign,
    load_settings,
    load_tokens,
    open_foreign,
    read_sizes,
)
from tt.model.formats.model_card import describe_origin
from tt.model.formats.model_folder import find_model_folder, is_ctranslate2, load_about, load_config
from tt.model.inspection.blocks import Facts, Folded, Section, Table, languages_of, options, show
from tt.model.text.normalization import WORD_BOUNDARY
from tt.model.text.spans import PLACEHOLDERS
from tt.model.text.vocabulary import SPECIAL_NAMES, Vocabulary, VocabularyPair, load_vocabularies
from tt.model.transformer.config import TransformerConfig, parameters_by_part

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_LONGEST_SHOWN = 12  # number of the longest tokens to show


def model_sections(folder: str | Path, *, name: str = "") -> list[Section]:
    """Return the summary of a model folder, a run folder's model, an export, or a foreign model.

    Args:
      folder: The folder. The weights are read only if the model is foreign.
      name: The name of the model, if it is not the path of the folder.

    Raises:
      UserError: There is no model, or a part of it is damaged.
    """
    values: dict[str, dict[str, Any]]
    rest: list[Section] = []
    if is_foreign(folder):
        foreign = open_foreign(folder)
        foreign.check_pieces()
        path, names = foreign.folder, sorted(foreign.files)
        values = {"Settings": load_settings(foreign.weights_folder), "Tokens": _tokens_of(foreign)}
        kind = "ctranslate2, from another program"
    else:
        path = Path(folder) if is_ctranslate2(folder) else find_model_folder(folder)
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        rest = [vocabulary_section(load_vocabularies(path))]
        if is_ctranslate2(path):
            kind, values = "ctranslate2", {"Settings": load_settings(path)}
        else:
            config = load_config(path)
            kind, values = "model", {"Architecture": config.to_json()}
            rest.insert(0, parameters_section(config))
    about = load_about(path)
    data = about.data
    facts = [
        ("model", name or str(path)),
        ("format", kind),
        ("imported from", about.imported_from.get("model", "")),
        ("license", about.imported_from.get("license", "")),
        ("languages", languages_of(data)),
        ("trained on", f"{data.pairs:,} pairs of {', '.join(data.corpora)}" if data.pairs else ""),
        ("began with", describe_origin(about.began_with)),
        ("updates", about.steps or None),
        ("mean of", ", ".join(about.checkpoints)),
    ]
    values["Training"] = about.recipe
    files = Table(["name", "bytes"], [[name, (path / name).stat().st_size] for name in names])
    overview = [
        Facts(facts),
        *(options(title, each) for title, each in values.items() if each),
        Folded("Files", [files]),
        Folded("Versions", [Facts([*about.versions.items()])]),
    ]
    return [Section("overview", "Overview", overview), *rest]


def _tokens_of(model: ForeignModel) -> dict[str, Any]:
    """Return the tokenization, the numbers of tokens and the languages of a foreign model."""
    weights = model.weights_folder
    return {
        **dataclasses.asdict(model.tokenization),
        **{f"{side}_tokens": len(load_tokens(weights, side)) for side in ("source", "target")},
        "most_tokens": read_sizes(weights).positions,
        "languages": sorted(model.languages),
    }


def parameters_section(config: TransformerConfig) -> Section:
    """Return a section with the numbers of trained parameters by part, and their sum."""
    parts = parameters_by_part(config)
    rows = [*parts.items(), ("all", sum(parts.values()))]
    return Section("parameters", "Parameters", [Table(["part", "parameters"], rows)])


def vocabulary_section(pair: VocabularyPair) -> Section:
    """Return a section about the vocabularies of both sides, or the shared vocabulary."""
    sides = {"shared": pair.source} if pair.is_shared else vars(pair)
    files = pair.files[1:]
    facts = [_vocabulary(*each, file) for each, file in zip(sides.items(), files, strict=True)]
    return Section("vocabulary", "Vocabulary", facts)


def _vocabulary(side: str, vocabulary: Vocabulary, file: str) -> Facts:
    learned = vocabulary.learned_pieces()
    pieces = [vocabulary.piece(i) for i in range(len(SPECIAL_NAMES), vocabulary.piece_count)]
    others = [piece for piece in pieces if piece not in learned and piece not in PLACEHOLDERS]
    given = [piece for piece in others if not _BYTE.fullmatch(piece)]
    longest = sorted(learned, key=lambda piece: (-len(piece.replace(WORD_BOUNDARY, "")), piece))
    empty = vocabulary.size - vocabulary.piece_count
    filling = f", {empty:,} of them unused" if empty else ""
    return Facts(
        [
            (side, f"{vocabulary.size:,} tokens ({_type(learned)}){filling}, {file}"),
            ("learnt", len(learned)),
            ("placeholders", len(PLACEHOLDERS) if vocabulary.has_placeholders else None),
            ("bytes", len(others) - len(given) or None),
            ("begin a word", sum(piece.startswith(WORD_BOUNDARY) for piece in learned)),
            ("longest", " ".join(longest[:_LONGEST_SHOWN])),
            ("given", " ".join(given)),
            ("normalization", show(vocabulary.normalization.as_json())),
        ]
    )


def _type(learned: dict[str, tuple[int, float]]) -> str:
    if all(len(piece) == 1 for piece in learned):
        return "char"
    # SentencePiece stores negated ranks in a BPE model, and log-probabilities in a unigram model.
    is_rank = all(score == int(score) for _, score in learned.values())
    return "bpe" if is_rank else "unigram"
