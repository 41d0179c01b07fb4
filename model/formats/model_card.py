"""The model card: what a model was trained on, how, for how long and by what; without TensorFlow.

It is the section `about` in the configuration of a model folder, see
`tt.model.formats.model_folder`.
"""

from __future__ import annotations

import bisect
import dataclasses
import importlib.metadata
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tt.model.dataset.manifest import TRAIN, DatasetManifest, ratio_of_place
from tt.model.json_files import parse_fields
from tt.model.text.languages import are_different

if TYPE_CHECKING:  # the help of a command needs none
    import numpy as np
    import numpy.typing as npt

_PROGRAMS = ("tt-translate", "tensorflow", "keras", "sentencepiece")
_SCORE_QUANTILES = (0.001, 0.01, 0.1, 0.5)
LITTLE_KNOWN = (
    "it has learnt little of other languages, and its vocabulary splits their words into many "
    "tokens"
)
_QUANTILES = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a model was trained on, as in `DatasetManifest` and `SplitInfo`; empty if unknown."""

    source_language: str = ""
    target_language: str = ""
    # names of the corpora, those held out not among them
    corpora: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str = ""
    pairs: int = 0
    source_lengths: list[int] = dataclasses.field(default_factory=list)
    target_lengths: list[int] = dataclasses.field(default_factory=list)
    # Quantiles of target tokens for a source token, by their names: "50%" is the median. None of
    # datasets that were made before they were counted.
    length_ratios: dict[str, float] = dataclasses.field(default_factory=dict)
    # Pairs by that ratio whose source ends with a full stop or the like and whose target does not,
    # as in `SplitInfo`.
    lost_end_ratios: list[int] = dataclasses.field(default_factory=list)
    # `placeholder_pairs[k - 1]` pairs had at least k placeholders; none if none had any, or if they
    # were not counted.
    placeholder_pairs: list[int] = dataclasses.field(default_factory=list)
    # `--protect-regex` of the dataset: what else its placeholders stood for.
    protect_regex: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, manifest: DatasetManifest) -> TrainingData:
        """Takes what a dataset says of itself."""
        split = manifest.splits[TRAIN]
        names = [each["name"] for each in manifest.sources if not each.get("is_held_out")]
        return cls(
            source_language=manifest.source_language,
            target_language=manifest.target_language,
            corpora=list(dict.fromkeys(names)) or [manifest.corpus],
            fingerprint=manifest.fingerprint,
            pairs=split.records,
            source_lengths=split.source_lengths,
            target_lengths=split.target_lengths,
            length_ratios=ratio_quantiles(split.length_ratios),
            lost_end_ratios=split.lost_end_ratios,
            placeholder_pairs=split.placeholder_pairs,
            protect_regex=list(manifest.options.get("protect_regex", ())),
        )

    def describe_other_languages(self, *, source_language: str, target_language: str) -> str:
        """Says that a dataset is of other languages than this; "" where that is not known.

        >>> data = TrainingData(source_language="en", target_language="de")
        >>> data.describe_other_languages(source_language="en-GB", target_language="es")
        'translates from en to de, and the dataset is from en-GB to es'
        >>> data.describe_other_languages(source_language="eng", target_language="")
        ''
        """
        pairs = (self.source_language, source_language), (self.target_language, target_language)
        if not any(are_different(own, other) for own, other in pairs):
            return ""
        [(source, other_source), (target, other_target)] = pairs
        return (
            f"translates from {source or '?'} to {target or '?'}, and the dataset is from "
            f"{other_source or '?'} to {other_target or '?'}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What a model is; empty where that was not written down."""

    data: TrainingData = dataclasses.field(default_factory=TrainingData)
    steps: int = 0  # updates of its weights
    # Quantiles of the log-probability of a token in greedy translations of the validation split, by
    # their names, under the weights that were last scored; none where nothing was translated.
    token_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    # Names of those of which it is one, or the mean; none of the weights at the end of a training.
    checkpoints: list[str] = dataclasses.field(default_factory=list)
    # What the model was whose weights it began with: its path, and of its card pairs, corpora,
    # steps and `began_with`, as far as they are known; empty where it began at random.
    began_with: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The options of the training, and the number of replicas.
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Versions of the programs that wrote it.
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def origin(self) -> dict[str, Any]:
        """What a model that begins with its weights says of it."""
        data = self.data
        known = {"pairs": data.pairs, "corpora": data.corpora, "steps": self.steps}
        return {k: v for k, v in {**known, "began_with": self.began_with}.items() if v}


def describe_run(config: Mapping[str, Any]) -> About:
    """Return what the configuration of a run says about its models, at any step."""
    initial = {"init_from": config["init_from"]["model"]} if "init_from" in config else {}
    return About(
        data=parse_fields(TrainingData, config.get("data") or {"fingerprint": config["dataset"]}),
        began_with=origin_of_run(config),
        recipe={**config["training"], "replicas": config["replicas"], **initial},
        versions=versions_of(_PROGRAMS),
    )


def origin_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the configuration of a run says of the model that it began with."""
    initial = config.get("init_from") or {}
    return {name: value for name, value in initial.items() if name != "fingerprint"}


def describe_origin(began_with: Mapping[str, Any]) -> str:
    """Says what a model began with, as `About.began_with` has it; "" where it began at random.

    >>> first = {"model": "big", "steps": 800}
    >>> describe_origin({"model": "run", "pairs": 7000, "corpora": ["a.tsv"], "began_with": first})
    'run (7,000 pairs of a.tsv; began with big (800 updates))'
    """
    if not began_with:
        return ""
    parts = []
    if pairs := began_with.get("pairs"):
        parts.append(f"{pairs:,} pairs of {', '.join(began_with.get('corpora', ()))}")
    if steps := began_with.get("steps"):
        parts.append(f"{steps:,} updates")
    if earlier := describe_origin(began_with.get("began_with", {})):
        parts.append(f"began with {earlier}")
    return f"{began_with['model']} ({'; '.join(parts)})" if parts else str(began_with["model"])


def ratio_quantiles(counts: list[int]) -> dict[str, float]:
    """Returns quantiles of what `SplitInfo.length_ratios` counts; of nothing, none.

    >>> import numpy as np
    >>> from tt.model.dataset.manifest import ratio_places
    >>> counts = np.bincount(ratio_places(np.array([9] * 98 + [4] * 2), np.array([9] * 100)))
    >>> ratio_quantiles(counts.tolist())["50%"], ratio_quantiles(counts.tolist())["99%"]
    (1.0, 3.364)
    """
    if not any(counts):
        return {}
    up_to = list(itertools.accumulate(counts))
    places = {share: bisect.bisect_left(up_to, share * up_to[-1]) for share in _QUANTILES}
    return {f"{100 * q:g}%": round(ratio_of_place(place), 3) for q, place in places.items()}


def score_quantiles(scores: npt.NDArray[np.float32]) -> dict[str, float]:
    """Returns quantiles of log-probabilities of a token, one for each translation; of none, none.

    >>> import numpy as np
    >>> score_quantiles(np.linspace(-2, 0, 2001, dtype=np.float32))["0.1%"]
    -1.998
    """
    if not scores.size:
        return {}
    import numpy as np

    found = np.quantile(scores.astype(np.float64), _SCORE_QUANTILES)
    names = [f"{100 * q:g}%" for q in _SCORE_QUANTILES]
    return dict(zip(names, found.round(6).tolist(), strict=True))


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of packages; "not installed" of those that are not there."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
