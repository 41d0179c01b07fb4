"""`tt average`, `tt export` and `tt import`: write model folders."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import import_tensorflow
from tt.cli.shared_options import DEFAULT_RUN, local_path
from tt.model.folders import default_cache
from tt.model.imports.importing import ImportRequest
from tt.model.storage.paths import is_local
from tt.model.storage.stores import check_buckets
from tt.model.training.exporting import AverageRequest, ExportRequest
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.staging import stage_model
from tt.pipelines.runners.status_line import TimeLine

# Search options that a saved-model does not contain, or that belong to other commands.
_CHOSEN_LATER = tuple(
    f"search.{field.name}"
    for field in dataclasses.fields(Decoding)
    if field.name not in ("beam_size", "length_penalty")
)
_AVERAGE = options_of(AverageRequest, defaults={"run": str(DEFAULT_RUN), "output": "averaged"})
_EXPORT = options_of(
    ExportRequest,
    panels={"Search in a saved-model": ("search",)},
    flags={"model": "RUN_OR_MODEL"},
    leave_out=_CHOSEN_LATER,
)
_IMPORT = options_of(
    ImportRequest,
    panels={
        "Tokens": (
            "source_vocabulary", "target_vocabulary", "source_prefix", "source_suffix",
            "target_prefix",
        ),
        "Languages": ("source_language", "target_language"),
    },
    flags={"format": "FORMAT", "model": "MODEL"},
)  # fmt: skip


@command()
def average_command(request: Annotated[AverageRequest, _AVERAGE]) -> None:
    """Average checkpoints of a run into a model folder.

    Example: tt average --run run --of last --count 3 --output averaged
    """
    folder = local_path(request.output)
    request.check()
    import_tensorflow()
    with TimeLine("averaging", stream=sys.stderr):
        names = request.write()
    say(f"Model: {folder}, the mean of {', '.join(names)}")


@command()
def export_command(request: Annotated[ExportRequest, _EXPORT]) -> None:
    """Export a trained model for tt, TensorFlow, CTranslate2 or Transformers.

    Example: tt export run --format saved-model --output saved
    """
    folder = local_path(request.output)
    if request.checkpoint is None and not is_local(request.model):
        check_buckets([request.model])
        model = stage_model(request.model, cache=default_cache(), report=say)
        request = dataclasses.replace(request, model=str(model))
    request.check()
    import_tensorflow()
    with TimeLine("exporting", stream=sys.stderr):
        request.write()
    say(f"Exported: {folder}")


@command()
def import_command(request: Annotated[ImportRequest, _IMPORT]) -> None:
    """Import a model from Hugging Face or CTranslate2.

    You can translate with models from Hugging Face without an import, and with CTranslate2 folders
    of OPUS-MT, NLLB, M2M and Argos Translate models.

    Example: tt import huggingface hf:Helsinki-NLP/opus-mt-en-es --output model
    """
    folder = local_path(request.output)
    with TimeLine("importing", stream=sys.stderr):
        request.write(prepare=import_tensorflow)
    say(f"Model: {folder}")
