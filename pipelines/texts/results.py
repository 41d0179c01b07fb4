"""Find the translations of sources in the translation memory, or translate the sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tt.model.engines.batching import begin_sources
from tt.model.engines.translator import Input, Languages, Translation, Translator, Work
from tt.pipelines.texts.calling import PROBE, call_on_parts
from tt.pipelines.texts.choosing import Found
from tt.pipelines.texts.plans import Plan
from tt.pipelines.texts.remembering import Learned, Memory


class Results:
    """The translations of sources, from the memory or from the model.

    Attributes:
      found: The translation of each source, or the error if the model fails at it.
      remembered: The sources whose translations come from the memory.
      work: The work of the model.
    """

    def __init__(
        self, translator: Translator, *, memory: Memory | None, languages: Languages
    ) -> None:
        self._translator = translator
        self._memory = memory
        self._languages = languages
        self.found: dict[Input, Translation | Exception] = {}
        self.remembered: set[Input] = set()
        self.work = Work()

    def add(self, plans: Iterable[Plan]) -> None:
        """Find or translate the sources of plans that have no result yet."""
        plans = list(plans)
        sources = [source for source in _sources_of(plans) if source not in self.found]
        if self._memory is not None:
            # The text of a truncated source does not tell how much of it the model translates.
            truncated = _truncated_sources_of(plans)
            by_text = {source.text: source for source in sources if source not in truncated}
            found = self._memory.find_translations(by_text, languages=self._languages)
            known = {by_text[text]: translation for text, translation in found.items()}
            self.found |= known
            self.remembered |= known.keys()
            sources = [source for source in sources if source not in known]
        made, work = _translate(sources, translator=self._translator, languages=self._languages)
        self.found |= made
        self.work += work

    def learn(
        self, plans: Collection[Plan], flags: Mapping[Input, Sequence[str]]
    ) -> tuple[Learned, ...]:
        """Return the new translations of the model, with the flags of their best hypotheses."""
        others = self.remembered | _truncated_sources_of(plans)
        return tuple(
            Learned(source.text, self._languages, result, tuple(flags.get(source, ())))
            for source in dict.fromkeys(s for plan in plans for s in plan.sources.values())
            if source not in others and isinstance(result := self.found[source], Translation)
        )


def _truncated_sources_of(plans: Iterable[Plan]) -> set[Input]:
    return {plan.sources[part] for plan in plans for part in plan.truncated}


def _sources_of(plans: Iterable[Plan]) -> dict[Input, None]:
    """Return the distinct sources of plans, in order."""
    return dict.fromkeys(source for plan in plans for source in plan.occurrences)


def _translate(
    sources: Sequence[Input], *, translator: Translator, languages: Languages
) -> tuple[Found, Work]:
    """Return the translation of each source, or the error if the model fails at it."""
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Input]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate(some)
        work += done
        return translations

    found = call_on_parts(
        translate,
        [*sources],
        probe=lambda: translator.translate(translator.prepare([PROBE], languages=languages)),
        is_input_error=translator.is_input_error,
    )
    return dict(zip(sources, found, strict=True)), work
