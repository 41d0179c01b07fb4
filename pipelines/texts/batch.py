"""The steps of a translation: prepare, translate, translate again, and receive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from tt.model.engines.translator import Hypothesis, Translation, Translator
from tt.model.text.glossary import Glossary
from tt.pipelines.texts.calling import one_line
from tt.pipelines.texts.drafts import Draft
from tt.pipelines.texts.flags import PIECES, Limits
from tt.pipelines.texts.inputs import Inputs, Placed, open_drafts
from tt.pipelines.texts.known import Memory, Translations
from tt.pipelines.texts.options import TRUNCATE, TextOptions
from tt.pipelines.texts.receiving import find_kept, find_pair, has_wrong_figures, receive
from tt.pipelines.texts.results import FAILED
from tt.pipelines.texts.segments import Kind, Segment
from tt.pipelines.texts.word_links import find_links


class _Again(NamedTuple):
    """A sentence for the second round."""

    draft: Draft
    segment: Segment
    others: list[Segment]  # that may replace the sentence


class Batch:
    """Texts that are translated together; the model gets each distinct input once.

    Attributes:
      known: The inputs of the model, and their translations.
      inputs: Cuts texts, and prepares the inputs.
      limits: The usual values of the model.
      flags: The flags of the best translations, by the text for the model.

    Raises:
      UserError: The model does not have the languages of the options.
    """

    def __init__(
        self,
        translator: Translator,
        options: TextOptions,
        *,
        glossary: Glossary | None,
        limits: Limits | None,
        memory: Memory | None,
    ) -> None:
        self._translator = translator
        self._options = options
        self.limits = limits or Limits()
        self.flags: dict[str, Sequence[str]] = {}
        self.known = Translations(
            translator,
            memory=memory,
            languages=(options.source_language, options.target_language),
            most_tokens=options.max_source_tokens if options.on_too_long == TRUNCATE else None,
        )
        self.inputs = Inputs(self.known, options=options, glossary=glossary)

    def translate(self, texts: Sequence[str]) -> list[Draft]:
        """Return the finished drafts of distinct texts.

        Raises:
          Exception: The translator failed, and no text can have caused it.
        """
        drafts = self.inputs.begin(texts)
        self.known.translate(source for draft in open_drafts(drafts) for source in draft.sources)
        every = [(each, draft) for draft in open_drafts(drafts) for each in draft.segments]
        # A fragment of a sentence that lost its spans can still have wrong figures.
        self._translate_again(self._translate_again(every))
        self._receive(open_drafts(drafts))
        return drafts

    def _translate_again(self, segments: Sequence[Placed]) -> list[Placed]:
        """Translate sentences again whose translations lost spans or have wrong figures.

        A sentence with wrong figures stays as it is, unless all figures of its new translation are
        right. Returns the fragments of sentences that lost spans.
        """
        lost: list[_Again] = []
        wrong: list[_Again] = []
        for segment, draft in segments:
            result = segment.source and self.known.found[segment.source.text]
            if not isinstance(result, Translation):
                continue
            made = find_kept(segment, result)
            if made is None:
                lost.append(_Again(draft, segment, self.inputs.cut_around(segment, draft)))
            elif self._options.protection.protect and has_wrong_figures(
                segment, made, limits=self.limits
            ):
                wrong.append(_Again(draft, segment, self.inputs.protect_figures(segment, draft)))
        again = [*lost, *wrong]
        new = [(other, each.draft) for each in again for other in each.others]
        self.inputs.prepare(new)
        failures = [self.inputs.settle(each.others) for each in again]
        self.known.translate(other.source for other, _ in new if other.source)
        others: dict[int, list[Segment]] = {}
        for i, (each, failure) in enumerate(zip(again, failures, strict=True)):
            is_lost = i < len(lost)
            if is_lost and failure:
                each.draft.failure = failure
            elif is_lost or (failure is None and all(map(self._is_right, each.others))):
                others[id(each.segment)] = each.others
        for draft in dict.fromkeys(each.draft for each in again):
            draft.replace(others)
            draft.find_unended()
        return [(other, each.draft) for each in lost for other in each.others]

    def _is_right(self, segment: Segment) -> bool:
        """Return whether the translation of a segment has all spans and figures."""
        if segment.source is None:
            return True
        result = self.known.found[segment.source.text]
        made = find_kept(segment, result) if isinstance(result, Translation) else None
        return made is not None and not has_wrong_figures(segment, made, limits=self.limits)

    def _receive(self, drafts: Sequence[Draft]) -> None:
        """Give the segments their translations, with everything that the model did not get."""
        waiting = [
            (draft, segment, self.known.found[segment.source.text])
            for draft in drafts
            for segment in [*draft.attributes, *draft.segments, *draft.replaced]
            if segment.source
        ]
        pairs = [
            [find_pair(segment, each.text) for each in result.hypotheses]
            if isinstance(result, Translation)
            else []
            for _, segment, result in waiting
        ]
        replaced = {id(segment) for draft in drafts for segment in draft.replaced}
        links = find_links(
            filter(None, itertools.chain(*pairs)),
            translator=self._translator,
            languages=self.known.languages,
        )
        for (draft, segment, result), own in zip(waiting, pairs, strict=True):
            if isinstance(result, Exception):
                draft.failure = draft.failure or (FAILED, one_line(result))
                continue
            is_kept = receive(
                segment,
                result,
                limits=self.limits,
                linked=[pair and links[pair] for pair in own],
                tags=draft.written_tags(segment),
                repairs_figures=self._options.protection.protect,
            )
            if is_kept:
                self.flags[segment.shown] = tuple(segment.flags)
            elif segment.kind is Kind.ATTRIBUTE:  # it stays as it is
                segment.hypotheses = (Hypothesis(segment.text, 0.0),)
                segment.flags = {PIECES: "the model lost a span, so the text stays"}
            elif id(segment) not in replaced:
                error = f"the model does not keep the protected text in {segment.text!r}"
                draft.failure = draft.failure or (FAILED, error)
