"""`tt attention`: the attention of a model while it translates a sentence."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import DEFAULT_RUN, local_path
from pipelines.reports.requests import AttentionRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(
    AttentionRequest,
    flags={"sentence": "SENTENCE", "overwrite": "--overwrite"},
    defaults={"model": str(DEFAULT_RUN)},
)


@command()
def attention_command(request: Annotated[AttentionRequest, _OPTIONS]) -> None:
    """Draw what a model looks at as it translates.

    The attention of the encoder, of the decoder and between them, for each layer and head.

    Example: tt attention "A dog runs." --output attention.html
    """
    from pipelines.reports.folders import check_attention

    local_path(request.model)
    check_attention(request)
    import_tensorflow()
    from model.transformer.attention_figures import undrawable
    from pipelines.reports.attention import write_attention

    with TimeLine("drawing the attention", stream=sys.stderr):
        found = write_attention(request)
    typer.echo(found.target)
    if found.doubt:
        say(f"tt: warning: this attention means little, because {found.doubt}")
    drawn = found.maps[request.kind]
    missing = undrawable([*drawn.rows, *drawn.columns])
    if missing and not request.output.endswith(".html"):
        say(
            f"tt: warning: no font here has {''.join(missing[:10])}, so that tokens are "
            "numbered: install one, such as fonts-noto-cjk, or write .html"
        )
    say(f"Attention: {request.output}")
