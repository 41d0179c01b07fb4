"""The transform TranslateRows, and the parts that other steps with a model share.

Beam's `BatchElements` makes batches without state or timers, and each batch ends with its bundle at
the latest. Therefore, the runner can fuse all steps with their neighbors, even in streams. Elements
keep their timestamps and windows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from tt.model.engines.translator import Translator
from tt.model.errors import checked
from tt.model.formats.model_card import About
from tt.pipelines.inference.model_copies import SharedTranslator
from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.inference.rows import OpenRow, Row, RowFields, translated_type
from tt.pipelines.inference.text_model import NamedGlossary, TextModel
from tt.pipelines.texts.flags import FLAGS
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import FAILED, STATUSES, TranslatedText

MIN_BATCH, MAX_BATCH = 64, 1024  # texts; larger batches have less padding, but need more memory


class ModelDoFn(beam.DoFn):
    """A step that shares the model of its process, and counts its texts.

    Args:
      load_translator: Function that creates the translator, called once per process for all steps
        that share it. It must pickle.
      options: Options for texts. With options, `setup` loads the model and sets `model`, a
        `TextModel`. Without options, the first call of `acquire` loads the translator.
    """

    def __init__(
        self, load_translator: Callable[[], Translator], *, options: TextOptions | None = None
    ) -> None:
        self._load, self._shared = load_translator, SharedTranslator(load_translator)
        self._text_options = options
        self._glossary = NamedGlossary.of(options.glossary) if options else None
        # These counters show the progress of a running job. The numbers in a manifest come from its
        # units instead.
        self._rows = {status: Metrics.counter("tt", f"rows_{status}") for status in STATUSES}
        self._flagged = {flag: Metrics.counter("tt", f"rows_flagged_{flag}") for flag in FLAGS}

    def setup(self) -> None:
        """Load the model, unless another step of this process has already loaded it."""
        if self._text_options is not None:
            translator, load, options = self.acquire(), self._load, self._text_options
            about = load.describe(options) if isinstance(load, ModelLoader) else About()
            self.model = TextModel.of(
                translator, about=about, options=options, glossary=self._glossary
            )

    def acquire(self) -> Translator:
        """Return the translator, and load it if it is not yet loaded."""
        if "translator" not in self.__dict__:
            self.translator = self._shared.acquire()
        return self.translator

    def teardown(self) -> None:
        """Release the model."""
        self.__dict__.pop("model", None)
        self.__dict__.pop("translator", None)

    def count_rows(self, *, statuses: Mapping[str, int], flags: Mapping[str, int]) -> None:
        """Add numbers of rows to the counters of statuses and flags."""
        for counters, rows in ((self._rows, statuses), (self._flagged, flags)):
            for name, count in rows.items():
                counters[name].inc(count)

    def count(self, found: Iterable[TranslatedText]) -> None:
        """Add texts to the counters of statuses and flags."""
        self.count_rows(
            statuses=collections.Counter(each.status for each in found),
            flags=collections.Counter(flag for each in found for flag in each.flags),
        )


class TranslatedRows(NamedTuple):
    """The outputs of `TranslateRows` with `with_failed`."""

    translated: beam.PCollection[Row]
    failed: beam.PCollection[Row]  # rows with a text that failed, and its error


@checked
@dataclasses.dataclass(eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateRows(beam.PTransform):
    """Adds translations to rows, with the field names of `tt translate-batch`.

    A dict becomes a dict. A `beam.Row` or a named tuple becomes a `beam.Row`, with a schema if the
    input has one. If a field contains a list of texts, the added fields contain lists, too. If the
    schema says that a field contains a list, and the list is None, the added lists have one item;
    the status is `["null"]`. Each row is output exactly once.

    The other texts in a batch do not change a translation; its score differs only by rounding.

    Attributes:
      load_translator: Function that creates the translator, called once per process; usually a
        `ModelLoader`.
      field: The field to translate, or several fields.
      output: Name of the field for the translation. The names of the other added fields start with
        it, for example `translation_score`. With several fields, all these names start with the
        name of the translated field.
      options: Options for texts.
      with_failed: Whether rows with a failed text go to a separate output. In this case, the
        transform returns `TranslatedRows`.
    """

    load_translator: Callable[[], Translator]
    _: dataclasses.KW_ONLY
    field: str | Sequence[str]
    output: str = "translation"
    options: TextOptions = dataclasses.field(default_factory=TextOptions)
    with_failed: bool = False

    def __post_init__(self) -> None:
        self.fields  # noqa: B018 -- checks the fields

    @property
    def fields(self) -> RowFields:
        """The fields to translate, and the names of the added fields."""
        decoding = getattr(self.load_translator, "decoding", None)
        return RowFields(
            fields=(self.field,) if isinstance(self.field, str) else tuple(self.field),
            output=self.output,
            has_n_best=decoding is not None and decoding.n_best > 1,
            has_language=self.options.detect_language,
        )

    def expand(self, rows_in: beam.PCollection[Row]) -> beam.PCollection[Row] | TranslatedRows:
        """Connect the steps of the transform."""
        kind, lists = translated_type(rows_in.element_type, fields=self.fields)
        translate = beam.ParDo(_TranslateRows(self, lists)).with_output_types(kind)
        if self.with_failed:
            translate = translate.with_output_types(kind, **{_FAILED: kind})
            translate = translate.with_outputs(_FAILED, main=_TRANSLATED)
        found = (
            rows_in
            | "Note times" >> beam.Map(lambda each, time=beam.DoFn.TimestampParam: (time, each))
            | "Batch" >> beam.BatchElements(min_batch_size=MIN_BATCH, max_batch_size=MAX_BATCH)
            | "Translate" >> translate
        )
        return TranslatedRows(found[_TRANSLATED], found[_FAILED]) if self.with_failed else found


_TRANSLATED, _FAILED = TranslatedRows._fields
_Timed = tuple[Timestamp, Any]  # a timestamp and its element


class _TranslateRows(ModelDoFn):
    def __init__(self, config: TranslateRows, lists: frozenset[str]) -> None:
        super().__init__(config.load_translator, options=config.options)
        self._fields = dataclasses.replace(config.fields, lists=lists)
        self._with_failed = config.with_failed

    def process(
        self, batch: list[_Timed], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue | TaggedOutput]:
        opened = [OpenRow.of(row, fields=self._fields) for _, row in batch]
        cells = [cell for row in opened for cell in row.cells]
        found = iter(self.model.translate(cells).translations)
        for (time, _), row in zip(batch, opened, strict=True):
            taken = row.take(found)
            texts = [text for each in taken.values() for text in each]
            self.count(texts)
            made = WindowedValue(row.with_translations(taken), time, (window,))
            is_failed = self._with_failed and any(each.status == FAILED for each in texts)
            yield TaggedOutput(_FAILED, made) if is_failed else made
