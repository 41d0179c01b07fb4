"""The model card: data, options, duration and program versions of a model's training.

The model card is the section `about` in the configuration of a model folder (see
`tt.model.formats.model_folder`). This module does not import TensorFlow.
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

if TYPE_CHECKING:  # not at run time, so that `tt COMMAND --help` stays fast
    import numpy as np
    import numpy.typing as npt

_PROGRAMS = ("tt-translate", "tensorflow", "keras", "sentencepiece")
_SCORE_QUANTILES = (0.001, 0.01, 0.1, 0.5)
LITTLE_KNOWN = (
    "it has learned little about other languages, and its vocabulary splits their words into many "
    "tokens"
)
_QUANTILES = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The training data of a model, with values from the dataset's manifest; empty if unknown."""

    source_language: str = ""
    target_language: str = ""
    # Names of the corpora, without held-out corpora.
    corpora: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str = ""
    pairs: int = 0
    source_lengths: list[int] = dataclasses.field(default_factory=list)
    target_lengths: list[int] = dataclasses.field(default_factory=list)
    # Quantiles of target tokens per source token by name, such as "50%" for the median.
    length_ratios: dict[str, float] = dataclasses.field(default_factory=dict)
    # Histogram of the same ratio for pairs that lose sentence-final punctuation; see `SplitInfo`.
    lost_end_ratios: list[int] = dataclasses.field(default_factory=list)
    # `placeholder_pairs[k - 1]` pairs had at least k placeholders on each side.
    placeholder_pairs: list[int] = dataclasses.field(default_factory=list)
    # The `--protect-regex` patterns of the dataset, which its placeholders may also represent.
    protect_regex: list[str] = dataclasses.field(default_factory=list)
    # The cosine that 99.9 % of the training pairs reach, if the dataset has an alignment filter.
    least_cosine: float | None = None

    @classmethod
    def of(cls, manifest: DatasetManifest) -> TrainingData:
        """Return the training data that a dataset's manifest describes."""
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
            least_cosine=(manifest.alignment or {}).get("least_cosine"),
        )

    def describe_other_languages(self, *, source_language: str, target_language: str) -> str:
        """Return a message if a dataset is known to have other languages, else "".

        >>> data = TrainingData(source_language="en", target_language="de")
        >>> data.describe_other_languages(source_language="en-GB", target_language="es")
        'translates from en to de, but the dataset is from en-GB to es'
        >>> data.describe_other_languages(source_language="eng", target_language="")
        ''
        """
        pairs = (self.source_language, source_language), (self.target_language, target_language)
        if not any(are_different(own, other) for own, other in pairs):
            return ""
        [(source, other_source), (target, other_target)] = pairs
        return (
            f"translates from {source or '?'} to {target or '?'}, but the dataset is from "
            f"{other_source or '?'} to {other_target or '?'}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """The model card. Unknown values are empty."""

    data: TrainingData = dataclasses.field(default_factory=TrainingData)
    steps: int = 0  # number of updates
    # Quantiles of the log-probability per token, by name, in the last greedy translations of the
    # validation split; empty if training did not translate.
    token_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    # Names of the checkpoints that were exported or averaged; empty for the final weights.
    checkpoints: list[str] = dataclasses.field(default_factory=list)
    # The initial model: its path, and from its model card the known values of pairs, corpora, steps
    # and `began_with`. Empty if training began with random weights.
    began_with: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The model of another program: its address or path, and its license; "" if it names none.
    imported_from: dict[str, str] = dataclasses.field(default_factory=dict)
    # The options of the training, and the number of replicas.
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Versions of the programs that wrote the model.
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def origin(self) -> dict[str, Any]:
        """The facts about this model for the card of a model that is trained from it."""
        data = self.data
        known = {"pairs": data.pairs, "corpora": data.corpora, "steps": self.steps}
        return {k: v for k, v in {**known, "began_with": self.began_with}.items() if v}


def describe_run(config: Mapping[str, Any]) -> About:
    """Return the part of the model card that all models of a run share.

    Args:
      config: The configuration of the run.
    """
    initial = {"init_from": config["init_from"]["model"]} if "init_from" in config else {}
    return About(
        data=parse_fields(TrainingData, config.get("data") or {"fingerprint": config["dataset"]}),
        began_with=origin_of_run(config),
        recipe={**config["training"], "replicas": config["replicas"], **initial},
        versions=versions_of(_PROGRAMS),
    )


def origin_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the initial model in the configuration of a run."""
    initial = config.get("init_from") or {}
    return {name: value for name, value in initial.items() if name != "fingerprint"}


def describe_origin(began_with: Mapping[str, Any]) -> str:
    """Describe the initial model in `About.began_with`; return "" for random weights.

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
    """Return quantiles of the ratios in `SplitInfo.length_ratios`, by name; {} without pairs.

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
    """Return quantiles of the log-probabilities per token of translations.

    With few scores, a low quantile is almost the lowest score, which varies widely. The function
    therefore omits quantiles with less than half a score below them: 0.1% needs 500 scores.

    >>> import numpy as np
    >>> scores = np.linspace(-2, 0, 2001, dtype=np.float32)
    >>> score_quantiles(scores)["0.1%"]
    -1.998
    >>> score_quantiles(scores[:50])
    {'1%': -1.99951, '10%': -1.9951, '50%': -1.9755}
    """
    import numpy as np

    shares = [share for share in _SCORE_QUANTILES if share * scores.size >= 0.5]
    found = np.quantile(scores.astype(np.float64), shares) if shares else np.zeros(0)
    names = [f"{100 * share:g}%" for share in shares]
    return dict(zip(names, found.round(6).tolist(), strict=True))


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, or "not installed"."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
