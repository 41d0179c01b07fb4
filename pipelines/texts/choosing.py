"""Choose the hypotheses that keep the spans of each sentence, and combine them to texts."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Mapping, Sequence

from tt.model.engines.translator import Hypothesis, Input, Languages, Translation, Translator
from tt.model.text.spans import BRACKET
from tt.pipelines.texts.aligning import Linked, Pair, find_links
from tt.pipelines.texts.figures import has_fraction, has_same_figures, replace_wrong_figure
from tt.pipelines.texts.judging import flag_sentence
from tt.pipelines.texts.limits import INCOMPLETE, NUMBER, SYMBOLS, Limits
from tt.pipelines.texts.plans import Plan

Found = Mapping[Input, Translation | Exception]
Hypotheses = tuple[Hypothesis, ...]  # best first
LinksOf = Mapping[Pair, Linked]


def choose(
    plan: Plan,
    part: str,
    result: Translation,
    *,
    limits: Limits,
    links: LinksOf,
    repairs_figures: bool,
) -> tuple[Hypotheses, list[str], bool] | None:
    """Return the hypotheses of a part that keep its spans, and the flags of the best one.

    The flags judge the texts with placeholders, so that protected spans have no influence. With
    `repairs_figures`, the function replaces a wrong figure of the best hypothesis.

    Returns:
      The hypotheses, the flags, and whether the places of all tags are clear; or None if no
      hypothesis keeps all spans.
    """
    usable = _usable_hypotheses(plan, part, result, links=links)
    if not usable:
        return None
    made, shown, is_clear = usable[0]
    found = [
        *flag_sentence(
            plan.shown(part),
            made.text if part in plan.masked else shown.text,
            limits=limits,
            source_tokens=plan.sources[part].length,
            target_tokens=made.tokens - 1,
            score=made.score,
        )
    ]
    unknown = plan.unknown_characters.get(part, frozenset())
    if SYMBOLS not in found and not unknown.issubset(made.text):
        found.append(SYMBOLS)
    hypotheses = [with_spans for _, with_spans, _ in usable]
    languages = limits.languages
    if (
        NUMBER in found
        and repairs_figures
        and (text := replace_wrong_figure(made.text, source=plan.shown(part), **languages))
    ):
        put_back = plan.put_back(part, text, links, linked=made.text)
        if put_back is not None:
            hypotheses[0] = dataclasses.replace(hypotheses[0], text=put_back[0])
    if not made.is_complete:
        found.append(INCOMPLETE)  # the flag has the same name as the status
    return tuple(hypotheses), found, is_clear


def has_wrong_figures(plan: Plan, part: str, result: Translation, *, limits: Limits) -> bool:
    """Return whether the best translation of a part has figures that `choose` cannot correct."""
    made = next((h for h in result.hypotheses if plan.keeps_spans(part, h.text)), None)
    if made is None or part in plan.truncated or part in plan.values:
        return False
    source, languages = plan.shown(part), limits.languages
    if has_same_figures(made.text, source=source, **languages):
        return False
    if has_fraction(f"{source}\n{made.text}"):
        return False
    return replace_wrong_figure(made.text, source=source, **languages) is None


def _usable_hypotheses(
    plan: Plan, part: str, result: Translation, *, links: LinksOf
) -> list[tuple[Hypothesis, Hypothesis, bool]]:
    """Return the hypotheses that keep all spans.

    Returns:
      For each hypothesis that keeps all spans: the hypothesis, a copy with the spans and tags put
      back, and whether the places of all tags are clear.
    """
    if plan.is_unchanged(part) and not any(BRACKET in each.text for each in result.hypotheses):
        return [(each, each, True) for each in result.hypotheses]
    found = []
    for hypothesis in result.hypotheses:
        if put_back := plan.put_back(part, hypothesis.text, links):
            text, is_clear = put_back
            found.append((hypothesis, dataclasses.replace(hypothesis, text=text), is_clear))
    return found


def find_all_links(
    plans: Sequence[Plan], found: Found, *, translator: Translator, languages: Languages
) -> LinksOf:
    """Return the links between sources and translations for all translations that need tags."""
    pairs: dict[Pair, None] = {}
    for plan in plans:
        for part in plan.masked:
            result = found.get(plan.sources[part])
            if isinstance(result, Translation):
                made = [plan.pair(part, each.text) for each in result.hypotheses]
                pairs |= dict.fromkeys(pair for pair in made if pair is not None)
    return find_links(pairs, translator=translator, languages=languages)


def combine(plan: Plan, found: Mapping[str, Hypotheses]) -> Hypotheses:
    """Return the hypotheses of a text: combinations of its parts' hypotheses, best first."""
    if len(plan.parts) == 1 and not plan.attributes:
        return found[plan.parts[0]]
    parts = [*plan.parts, *plan.attributes.values()]
    times = collections.Counter(part for part in parts if part in found)
    best = {part: each[0] for part, each in found.items()}
    count = max(len(each) for each in found.values())
    score = sum(times[part] * each.score for part, each in best.items())
    # Scores of other combinations, and the hypotheses that differ from the best combination.
    others: list[tuple[float, dict[str, Hypothesis]]] = []
    for part, (first, *rest) in found.items():
        others += [
            (known + times[part] * (each.score - first.score), changed | {part: each})
            for known, changed in [(score, {}), *others]
            for each in rest
        ]
        if len(found) > 1:  # a single part keeps the order of the search
            others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
    hypotheses = []
    for known, changed in [(score, {}), *others]:
        chosen = best | changed
        texts = {**plan.kept, **{part: each.text for part, each in chosen.items()}}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(plan.join(texts), known, is_complete))
    return tuple(hypotheses)
