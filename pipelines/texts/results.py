"""Find the translations of sources in the translation memory, or translate the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tt.model.engines.batching import begin_sources
from tt.model.engines.translator import Translation, Translator, Work
from tt.pipelines.texts.calling import PROBE, call_on_parts
from tt.pipelines.texts.choosing import Found
from tt.pipelines.texts.plans import Plan
from tt.pipelines.texts.remembering import Learned, Memory, Source


class Results:
    """The translations of sources, from the memory or from the model.

    Attributes:
      found: The translation of each source, or the error if the model fails at it.
      remembered: The sources whose translations come from the memory.
      work: The work of the model.
    """

    def __init__(
        self, translator: Translator, *, memory: Memory | None, target_language: str
    ) -> None:
        self._translator = translator
        self._memory = memory
        self._target_language = target_language
        self.found: dict[Source, Translation | Exception] = {}
        self.remembered: set[Source] = set()
        self.work = Work()

    def add(self, plans: Iterable[Plan]) -> None:
        """Find or translate the sources of plans that have no result yet."""
        sources = [source for source in _sources_of(plans) if source not in self.found]
        if self._memory is not None:
            target = self._target_language
            known = self._memory.find_translations(sources, target_language=target)
            self.found |= known
            self.remembered |= known.keys()
            sources = [source for source in sources if source not in known]
        made, work = _translate(sources, translator=self._translator)
        self.found |= made
        self.work += work

    def learn(
        self, plans: Iterable[Plan], flags: Mapping[Source, Sequence[str]]
    ) -> tuple[Learned, ...]:
        """Return the new translations of the model, with the flags of their best hypotheses."""
        texts = {source: plan.shown(p) for plan in plans for p, source in plan.sources.items()}
        return tuple(
            Learned(source, text, self._target_language, result, tuple(flags.get(source, ())))
            for source, text in texts.items()
            if source not in self.remembered
            and isinstance(result := self.found[source], Translation)
        )


def _sources_of(plans: Iterable[Plan]) -> dict[Source, None]:
    """Return the distinct sources of plans, in order."""
    return dict.fromkeys(source for plan in plans for source in plan.occurrences)


def _translate(sources: Sequence[Source], *, translator: Translator) -> tuple[Found, Work]:
    """Return the translation of each source, or the error if the model fails at it."""
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Source]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some])
        work += done
        return translations

    found = call_on_parts(
        translate,
        [*sources],
        probe=lambda: translator.translate_ids(translator.encode([PROBE])),
        is_input_error=translator.is_input_error,
    )
    return dict(zip(sources, found, strict=True)), work
