"""A model folder: architecture, parameters by part, vocabularies, and where it comes from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from model.errors import UserError
from model.formats.ctranslate2_files import load_settings, load_tokens, read_sizes
from model.formats.foreign import ForeignModel, is_foreign, open_foreign
from model.formats.model_card import About
from model.formats.model_folder import find_model_folder, is_ctranslate2, load_about, load_config
from model.summaries.vocabularies import VocabularySummary, summarize_vocabularies
from model.text.vocabulary import INCOMPLETE, load_vocabularies
from model.transformer.config import TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartSize:
    """The trained parameters of a part of a model, such as "encoder_0/attention"."""

    name: str
    parameters: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """What lies in a model folder, in an export for CTranslate2, or in another program's model."""

    folder: str
    format: str  # "model", "ctranslate2" or "ctranslate2, of another program"
    config: dict[str, Any]  # of `TransformerConfig`; of CTranslate2, of its own config.json
    parts: list[PartSize]  # in the order of the model; none of CTranslate2
    parameters: int  # of all parts
    files: dict[str, int]  # bytes of each
    vocabularies: list[VocabularySummary]
    about: About  # empty where an older `tt` did not write it down
    # Of another program's model, how texts become its tokens, and how many it has; else empty.
    tokenization: dict[str, Any] = dataclasses.field(default_factory=dict)


def summarize_model(folder: str | Path) -> ModelSummary:
    """Returns what lies in a model folder, in the run folder around it, or in an export.

    It imports TensorFlow, but for an export.

    Raises:
      UserError: There is no model, or something of it is damaged.
    """
    if is_foreign(folder):
        return _summarize_foreign(open_foreign(folder))
    if is_ctranslate2(folder):
        path = Path(folder)
        parts: list[PartSize] = []
        try:
            config = json.loads((path / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}/config.json cannot be read ({error}): {INCOMPLETE}") from error
    else:
        path = find_model_folder(folder)
        architecture = load_config(path)
        config = architecture.to_json()
        parts = parameters_of(architecture)
    return ModelSummary(
        folder=str(path),
        format="ctranslate2" if is_ctranslate2(path) else "model",
        config=config,
        parts=parts,
        parameters=sum(part.parameters for part in parts),
        files={file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()},
        vocabularies=summarize_vocabularies(load_vocabularies(path)),
        about=load_about(path),
    )


def _summarize_foreign(model: ForeignModel) -> ModelSummary:
    weights, tokenization = model.weights_folder, model.tokenization
    model.check_pieces()
    sizes = read_sizes(weights)
    return ModelSummary(
        folder=str(model.folder),
        format="ctranslate2, of another program",
        config=load_settings(weights),
        parts=[],
        parameters=0,
        files={name: (model.folder / name).stat().st_size for name in sorted(model.files)},
        vocabularies=[],
        about=load_about(model.folder),
        tokenization={
            **dataclasses.asdict(tokenization),
            **{f"{side}_tokens": len(load_tokens(weights, side)) for side in ("source", "target")},
            "most_tokens": sizes.positions,
            "languages": sorted(model.languages),
        },
    )


def parameters_of(config: TransformerConfig) -> list[PartSize]:
    """Returns the parameters of each part of an architecture. Imports TensorFlow."""
    from model.training.request import parameters_by_part
    from model.transformer.transformer import Transformer

    return [
        PartSize(name=name, parameters=count)
        for name, count in parameters_by_part(Transformer(config))
    ]
