"""Which translation of a sentence is taken, and how a text is made of those of its sentences."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Mapping
from typing import NamedTuple

from model.engines.translator import Hypothesis, Translation
from model.text.spans import BRACKET
from pipelines.texts.judging import Judge
from pipelines.texts.planning import Plan, Source
from pipelines.texts.segments import join_translations

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


class Chosen(NamedTuple):
    """What may become of a part."""

    hypotheses: tuple[Hypothesis, ...]  # with its spans
    score: float  # of the best
    flags: tuple[str, ...]


def choose(plan: Plan, found: Found, *, judge: Judge) -> dict[str, Chosen | Exception]:
    """Return the translation of each part of a text, or the error of the part."""
    chosen: dict[str, Chosen | Exception] = {}
    for part, source in plan.sources.items():
        result = found[source]
        if isinstance(result, Exception):
            chosen[part] = result
        elif usable := usable_hypotheses(plan, part, result):
            flagged = flags_of(plan, part, usable[0], judge=judge)
            shown = tuple(each.shown for each in usable)
            chosen[part] = Chosen(shown, usable[0].made.score, flagged)
        else:
            chosen[part] = ValueError(f"the model loses what must not change in {part!r}")
    return chosen


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
