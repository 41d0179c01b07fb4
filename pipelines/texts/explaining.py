"""Explain a translation: segments, texts for the model, hypotheses, and the rules of flags."""

from __future__ import annotations

from collections.abc import Iterator

from tt.model.engines.translator import Translation, Translator
from tt.model.text.glossary import Glossary
from tt.model.text.spans import PLACEHOLDERS
from tt.pipelines.texts.batch import Batch
from tt.pipelines.texts.calling import encode_text
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.known import Memory
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.segments import Segment
from tt.pipelines.texts.translating import read_cells, translate_cells


def explain(
    text: str | bytes,
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    limits: Limits | None = None,
    memory: Memory | None = None,
) -> Iterator[str]:
    """Yield lines that explain the translation of a text; see `translate_texts`."""
    batch = Batch(translator, options, glossary=glossary, limits=limits, memory=memory)
    texts, _ = read_cells([encode_text(text)])
    for draft in batch.translate([*texts.values()]):
        yield f"format: {draft.format.name}"
        for segment in sorted(
            [*draft.every, *draft.replaced], key=lambda each: (each.start, -each.end)
        ):
            replaced = ", replaced by its fragments" if segment in draft.replaced else ""
            kind = f"{segment.kind.value}{replaced}"
            yield f"{segment.start}-{segment.end} {kind}: {segment.text!r}"
            yield from (f"    {line}" for line in _explain_segment(segment, batch))
    made = translate_cells([text], batch, options=options, glossary=glossary)
    [found] = made.translations
    yield f"translation: {found.translation!r}"
    yield f"status: {found.status}{f' ({found.error})' if found.error else ''}"
    yield f"flags: {', '.join(found.flags) or 'none'}"


def _explain_segment(segment: Segment, batch: Batch) -> Iterator[str]:
    if segment.is_corrected:
        yield f"human translation: {segment.kept!r}"
    masked, source = segment.masked, segment.source
    if masked is None or source is None:
        return
    yield f"model gets: {masked.text!r} ({source.length} tokens)"
    for name, span in zip(PLACEHOLDERS, masked.replacements, strict=False):
        yield f"{name} stands for {span!r}"
    if masked.exact:
        yield f"must stay: {', '.join(map(repr, masked.exact))}"
    if masked.tags:
        yield f"tags: {', '.join(repr(tag.text) for tag in masked.tags)}"
    if masked.capitals:
        yield f"capitals: {masked.capitals.value}"
    if source.unknown:
        yield f"not in the vocabulary: {', '.join(map(repr, source.unknown))}"
    result = batch.known.found.get(source.text)
    if isinstance(result, Translation):
        for made in result.hypotheses:
            yield f"hypothesis: {made.score:.3f} {made.text!r}"
    for flag, why in segment.flags.items():
        yield f"flag {flag}: {why}"
