"""A sentence and a model to a picture, or a page, of the model's attention."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING

from model.errors import UserError, one_of, require, require_one_of, require_text
from model.transformer.search_options import Decoding

if TYPE_CHECKING:  # they import TensorFlow
    from model.views.attention import SentenceAttention

FORMATS = (".html", ".png", ".svg")
_KINDS = ("cross", "encoder", "decoder")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    """Attention to look at.

    >>> request = AttentionRequest(sentence="A dog runs.", model="run", output="a.html")
    >>> request.write()  # doctest: +SKIP

    Attributes:
      sentence: Sentence of the model's source language.
      output: File to write; its ending says what: .html (a page in which kind, layer and head are
        chosen), .png or .svg.
      model: Run folder, or an exported model folder.
      reference: Translation to look at instead of the model's own.
      kind: Attention of a picture, and that which a page shows first: "cross", "encoder" or
        "decoder".
      layer: Layer to draw, from 0. By default all.
      head: Head to draw, from 0. By default all.
      beam_size: Hypotheses kept while the model translates; 1 is greedy search.
      overwrite: Replace the file if it is there.
    """

    sentence: str
    output: str
    model: str = "run"
    reference: str | None = None
    kind: str = one_of(_KINDS, default="cross")
    layer: int | None = None
    head: int | None = None
    beam_size: int = 4
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_text("`sentence`", self.sentence)
        require_text("`reference`", self.reference or "")
        require_one_of("`kind`", self.kind, _KINDS)
        require(self.beam_size >= 1, "`beam_size` must be at least 1", self.beam_size)
        if Path(self.output).suffix not in FORMATS:
            raise UserError(
                f"`output` must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}. Received: "
                f"{self.output}"
            )

    def check(self) -> None:
        """Checks what can be known before TensorFlow is imported.

        Raises:
          UserError: There is no model that TensorFlow loads, it has no such layer or head, or the
            output cannot be written.
        """
        from model.formats.model_folder import find_model_folder, is_ctranslate2, load_config
        from pipelines.report.page import check_output

        if is_ctranslate2(self.model):
            raise UserError(
                f"{self.model} is a model for CTranslate2, which tells no attention: name a run, "
                "or a model folder of `tt train`"
            )
        config = load_config(find_model_folder(self.model))
        encoder, decoder = config.depths
        layers = encoder if self.kind == "encoder" else decoder
        of = f" of {self.kind} attention" if encoder != decoder else ""
        for name, value, count, what in (
            ("layer", self.layer, layers, of),
            ("head", self.head, config.heads, ""),
        ):
            require(
                value is None or 0 <= value < count,
                f"`{name}` must be 0 to {count - 1}, as {self.model} has {count}{what}",
                value,
            )
        check_output(self.output, overwrite=self.overwrite)

    def write(self) -> SentenceAttention:
        """Writes the file, and returns what is in it.

        Raises:
          UserError: See `check`; or the sentence is empty or too long.
        """
        from model.engines.tensorflow_engine import TensorFlowTranslator
        from model.views.attention import sentence_attention
        from pipelines.report.page import write_whole_file

        self.check()
        decoding = Decoding(beam_size=self.beam_size)
        translator = TensorFlowTranslator.load(self.model, decoding=decoding)
        found = sentence_attention(translator, self.sentence, reference=self.reference)
        heads = translator.model.config.heads
        chosen = list(range(heads)) if self.head is None else [self.head]
        output = Path(self.output)
        if output.suffix == ".html":
            content = self._page(found, heads=chosen).encode()
        else:
            content = self._picture(found, heads=chosen)
        write_whole_file(output, content)
        return found

    def _page(self, found: SentenceAttention, *, heads: list[int]) -> str:
        from pipelines.report.attention_part import attention_part
        from pipelines.report.page import Section, page

        body = attention_part(found, name="sentence", layer=self.layer, heads=heads, kind=self.kind)
        section = Section("attention", "Layers and heads", body)
        return page(title="Attention", lead=f"Model: {self.model}", sections=[section])

    def _picture(self, found: SentenceAttention, *, heads: list[int]) -> bytes:
        from model.views.figures import map_figure

        drawn = found.maps[self.kind]
        layers = list(range(len(drawn.weights))) if self.layer is None else [self.layer]
        title = f"{found.source} → {found.target}"
        figure = map_figure(drawn, layers=layers, heads=heads, title=title)
        written = io.BytesIO()
        figure.savefig(written, format=Path(self.output).suffix[1:])
        return written.getvalue()
