"""A model folder: architecture, parameters by part, vocabularies, origin."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from model.errors import UserError
from model.folders.json_files import read_json
from model.formats.foreign import (
    ForeignModel,
    is_foreign,
    load_settings,
    load_tokens,
    open_foreign,
    read_sizes,
)
from model.formats.model_card import About, describe_origin
from model.formats.model_folder import find_model_folder, is_ctranslate2, load_about, load_config
from model.inspection.blocks import Facts, Folded, Section, Table, languages_of, options, table
from model.inspection.vocabularies import (
    VocabularySummary,
    summarize_vocabularies,
    vocabulary_sections,
)
from model.text.vocabulary import INCOMPLETE, load_vocabularies
from model.training.request import parameters_by_part
from model.transformer.config import TransformerConfig
from model.transformer.transformer import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """The content of a model folder, of an export for CTranslate2, or of a foreign model."""

    folder: str
    format: str  # "model", "ctranslate2" or "ctranslate2, of another program"
    config: dict[str, Any]  # of `TransformerConfig`, or CTranslate2's own config.json
    parts: dict[str, int]  # trained parameters, in the order of the model; none of CTranslate2
    parameters: int
    files: dict[str, int]  # bytes of each
    vocabularies: list[VocabularySummary]
    about: About
    # How texts become tokens, and how many tokens there are; only of a foreign model.
    tokenization: dict[str, Any] = dataclasses.field(default_factory=dict)


def summarize_model(folder: str | Path) -> ModelSummary:
    """Summarize a model folder, the model of a run folder, an export, or a foreign model.

    Raises:
      UserError: There is no model, or a part of it is damaged.
    """
    if is_foreign(folder):
        return _summarize_foreign(open_foreign(folder))
    if is_ctranslate2(folder):
        path = Path(folder)
        parts: dict[str, int] = {}
        try:
            config = read_json(path / "config.json", dict)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}/config.json cannot be read ({error}): {INCOMPLETE}") from error
    else:
        path = find_model_folder(folder)
        architecture = load_config(path)
        config = architecture.to_json()
        parts = parts_of(architecture)
    return ModelSummary(
        folder=str(path),
        format="ctranslate2" if is_ctranslate2(path) else "model",
        config=config,
        parts=parts,
        parameters=sum(parts.values()),
        files={file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()},
        vocabularies=summarize_vocabularies(load_vocabularies(path)),
        about=load_about(path),
    )


def _summarize_foreign(model: ForeignModel) -> ModelSummary:
    weights = model.weights_folder
    model.check_pieces()
    return ModelSummary(
        folder=str(model.folder),
        format="ctranslate2, of another program",
        config=load_settings(weights),
        parts={},
        parameters=0,
        files={name: (model.folder / name).stat().st_size for name in sorted(model.files)},
        vocabularies=[],
        about=load_about(model.folder),
        tokenization={
            **dataclasses.asdict(model.tokenization),
            **{f"{side}_tokens": len(load_tokens(weights, side)) for side in ("source", "target")},
            "most_tokens": read_sizes(weights).positions,
            "languages": sorted(model.languages),
        },
    )


def parts_of(config: TransformerConfig) -> dict[str, int]:
    """Return the trained parameters of each part of an architecture, in its order."""
    return dict(parameters_by_part(Transformer(config)))


def parts_section(parts: dict[str, int]) -> Section:
    """Return the parameters of each part of a model, and of all."""
    rows = [*parts.items(), ("all", sum(parts.values()))]
    return Section("parameters", "Parameters", [Table(["part", "parameters"], rows)])


def model_sections(found: ModelSummary) -> list[Section]:
    """Return the sections of a model."""
    about, data = found.about, found.about.data
    facts = [
        ("model", found.folder),
        ("format", found.format),
        ("languages", languages_of(data)),
        ("trained on", f"{data.pairs:,} pairs of {', '.join(data.corpora)}" if data.pairs else ""),
        ("began with", describe_origin(about.began_with)),
        ("updates", about.steps or None),
        ("mean of", ", ".join(about.checkpoints)),
    ]
    files = [{"name": name, "bytes": size} for name, size in found.files.items()]
    blocks = {
        "Architecture" if found.format == "model" else "Settings": found.config,
        "Tokens": found.tokenization,
        "Training": about.recipe,
    }
    return [
        Section(
            "overview",
            "Overview",
            [
                Facts(facts),
                *(options(title, values) for title, values in blocks.items() if values),
                Folded("Files", [table(files, "name bytes")]),
                Folded("Versions", [Facts([*about.versions.items()])]),
            ],
        ),
        *([parts_section(found.parts)] if found.parts else []),
        *vocabulary_sections(found.vocabularies),
    ]
