"""Which translation of a sentence is taken, and how a text is made of those of its sentences."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model.engines.translator import Hypothesis, Translation
from model.text.spans import BRACKET
from pipelines.flags.judging import Judge
from pipelines.texts.planning import Plan, Source
from pipelines.texts.segments import join_translations

_NOTHING = Translation(())
Found = Mapping[Source, Translation | Exception]


class Usable(NamedTuple):
    """A hypothesis of a part that has its protected spans."""

    made: Hypothesis  # as the model made it, with placeholders
    shown: Hypothesis  # with the spans


def usable_hypotheses(plan: Plan, part: str, result: Translation) -> list[Usable]:
    """Returns those hypotheses of a part, best first, that have its protected spans."""
    is_plain = part not in plan.masked and part not in plan.unended
    if is_plain and not any(BRACKET in each.text for each in result.hypotheses):
        return [Usable(each, each) for each in result.hypotheses]
    return [
        Usable(hypothesis, dataclasses.replace(hypothesis, text=text))
        for hypothesis in result.hypotheses
        if (text := plan.put_back(part, hypothesis.text)) is not None
    ]


def flags_of(plan: Plan, part: str, best: Usable, *, judge: Judge) -> tuple[str, ...]:
    """Returns the flags of a part's translation; what must not change is no part of it."""
    ids = plan.sources[part]
    if part in plan.masked:
        return judge(plan.masked[part].text, best.made, source_tokens=len(ids) - 2)
    return judge(part, best.shown, source_tokens=len(ids) - 2)


class SecondTry(NamedTuple):
    """What a second try made of flagged sentences."""

    found: Mapping[Source, Translation] = {}  # by another search
    around: Mapping[str, Plan] = {}  # what is between the spans of a sentence that has some


class Chosen(NamedTuple):
    """What may become of a part."""

    hypotheses: tuple[Hypothesis, ...]  # with its spans
    score: float  # of the best
    flags: tuple[str, ...]


def choose(
    plan: Plan, found: Found, second: SecondTry, *, judge: Judge
) -> dict[str, Chosen | Exception]:
    """Chooses the translation of each part of a text.

    Of one that is flagged, a second try is taken if it has fewer flags, or as many and is more
    probable. Texts with the same ids may have other flags, so that each chooses for itself.
    """
    chosen: dict[str, Chosen | Exception] = {}
    for part, source in plan.sources.items():
        first = found[source]
        if isinstance(first, Exception):
            chosen[part] = first
            continue
        usable = usable_hypotheses(plan, part, first)
        if not usable:
            chosen[part] = ValueError(f"the model loses what must not change in {part!r}")
            continue
        best = _as_choice(plan, part, usable, judge=judge)
        if best.flags:
            tries = [best]
            usable = usable_hypotheses(plan, part, second.found.get(source, _NOTHING))
            if usable:
                tries.append(_as_choice(plan, part, usable, judge=judge))
            if part in second.around and part not in plan.truncated:
                tries += _choose_around(plan, part, second, judge=judge)
            best = min(tries, key=lambda each: (len(each.flags), -each.score))
        chosen[part] = best
    return chosen


def _as_choice(plan: Plan, part: str, usable: Sequence[Usable], *, judge: Judge) -> Chosen:
    flagged = flags_of(plan, part, usable[0], judge=judge)
    return Chosen(tuple(each.shown for each in usable), usable[0].made.score, flagged)


def _choose_around(plan: Plan, part: str, second: SecondTry, *, judge: Judge) -> list[Chosen]:
    """Returns a part as translated around its spans, judged by what is between them, if it was."""
    between = second.around[part]
    if not between.sources or not second.found.keys() >= set(between.sources.values()):
        return []
    translations = {
        piece: Translation(
            tuple(each.shown for each in usable_hypotheses(between, piece, second.found[source]))
        )
        for piece, source in between.sources.items()
    }
    if not all(each.hypotheses for each in translations.values()):
        return []
    hypotheses = combine(between, translations)
    pieces = [piece for piece in between.parts if piece in translations]
    best = [translations[piece].hypotheses[0] for piece in pieces]
    made = Hypothesis(
        " ".join(each.text for each in best),
        hypotheses[0].score,
        hypotheses[0].is_complete,
        tokens=sum(each.tokens - 1 for each in best) + 1,
    )
    tokens = sum(len(source) - 2 for source in between.occurrences)
    flagged = judge(" ".join(pieces), made, source_tokens=tokens)
    shown = [dataclasses.replace(h, text=plan.end_like(part, h.text)) for h in hypotheses]
    return [Chosen(tuple(shown), made.score, flagged)]


def combine(plan: Plan, translations: Mapping[str, Translation]) -> tuple[Hypothesis, ...]:
    """Returns the hypotheses of a text: the best of each piece, then the most probable others."""
    if len(plan.parts) == 1:
        return translations[plan.parts[0]].hypotheses
    times = collections.Counter(part for part in plan.parts if part in translations)
    best = {part: each.hypotheses[0] for part, each in translations.items()}
    count = max(len(each.hypotheses) for each in translations.values())
    score = sum(times[part] * each.score for part, each in best.items())
    others: list[tuple[float, dict[str, Hypothesis]]] = []  # scores, and what differs from the best
    for part, (first, *rest) in ((part, each.hypotheses) for part, each in translations.items()):
        others += [
            (known + times[part] * (each.score - first.score), changed | {part: each})
            for known, changed in [(score, {}), *others]
            for each in rest
        ]
        if len(translations) > 1:  # else they have the order of the search
            others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
    hypotheses = []
    for known, changed in [(score, {}), *others]:
        chosen = best | changed
        texts = {**plan.kept, **{part: each.text for part, each in chosen.items()}}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(join_translations(plan.parts, texts), known, is_complete))
    return tuple(hypotheses)
