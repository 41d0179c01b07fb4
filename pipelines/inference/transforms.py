"""The steps that translate: texts, rows, and the base of whatever else has a model.

Elements are put into batches by Beam's `BatchElements`, which needs neither state nor timers: a
batch ends with its bundle at the latest. So all of it stays in one stage with what comes before
and after, in streams as well. An element keeps its timestamp and window.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from model.engines.translator import Translator
from model.errors import UserError, require
from pipelines.inference import rows
from pipelines.inference.model_sharing import SharedTranslator
from pipelines.inference.rows import OpenRow, Row, RowFields
from pipelines.inference.text_model import NamedGlossary, TextModel
from pipelines.storage.paths import is_local
from pipelines.texts.limits import FLAGS
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import FAILED, STATUSES, TranslatedText

MIN_BATCH, MAX_BATCH = 64, 1024  # texts: the more, the less padding; they take memory


class TranslatorDoFn(beam.DoFn):
    """A step that has the model of its process as `translator`, and counts what it translates.

    Args:
      load_translator: Called once in each process by all steps that share it; must pickle.
    """

    def __init__(self, load_translator: Callable[[], Translator]) -> None:
        self._model = SharedTranslator(load_translator)
        # To be looked at while a job runs; the numbers of a manifest are those of its units.
        self._rows = {status: Metrics.counter("tt", f"rows_{status}") for status in STATUSES}
        self._flagged = {flag: Metrics.counter("tt", f"rows_flagged_{flag}") for flag in FLAGS}

    def setup(self) -> None:
        """Loads the model, unless another step of this process has done so."""
        self.acquire()

    def acquire(self) -> Translator:
        """Returns the model; loads it where that has not been done."""
        if "translator" not in self.__dict__:
            self.translator = self._model.acquire()
        return self.translator

    def teardown(self) -> None:
        """Lets go of the model."""
        self.__dict__.pop("translator", None)

    def count_statuses(self, rows: Mapping[str, int]) -> None:
        """Counts rows by their status."""
        for status, count in rows.items():
            self._rows[status].inc(count)

    def count_flags(self, rows: Mapping[str, int]) -> None:
        """Counts rows by their flags."""
        for flag, count in rows.items():
            self._flagged[flag].inc(count)


@dataclasses.dataclass(eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateTexts(beam.PTransform):
    """Texts (str, bytes or None) to `TranslatedText`s.

    A text has the same translation alone and among any others; its score differs by rounding.

    Attributes:
      load_translator: Makes the translator, once in each process; a `ModelLoader`.
      options: How texts are treated.
      is_keyed: Whether elements are pairs of a key and a text; the key stays with the translation.
      min_batch: Texts that are translated at once, at least, where a bundle has so many.
      max_batch: Texts that are translated at once, at most.
    """

    load_translator: Callable[[], Translator]
    _: dataclasses.KW_ONLY
    options: TextOptions = dataclasses.field(default_factory=TextOptions)
    is_keyed: bool = False
    min_batch: int = MIN_BATCH
    max_batch: int = MAX_BATCH

    def __post_init__(self) -> None:
        _check_batches(self)

    def expand(self, texts: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Wires the transform."""
        _check_reachable(self.options.glossary, options=texts.pipeline.options)
        kind = tuple[Any, TranslatedText] if self.is_keyed else TranslatedText
        translate = beam.ParDo(_TranslateTexts(self)).with_output_types(kind)
        return _in_batches(texts, translate, sizes=self)


class TranslatedRows(NamedTuple):
    """What `TranslateRows` returns where failed rows are asked for."""

    translated: beam.PCollection[Row]
    failed: beam.PCollection[Row]  # those of which a text failed, with the error beside it


@dataclasses.dataclass(eq=False)
class TranslateRows(beam.PTransform):
    """Rows with translations beside their texts, by the names of `tt translate-batch`.

    A dict becomes a dict; a `beam.Row` and a named tuple a `beam.Row`, with a schema if they have
    one. Where a field holds a list of texts, what is added are lists; where it is None in place of
    a list, by the schema of the rows, they are lists of one, `["null"]` the status. Each row comes
    out once.

    Attributes:
      load_translator: Makes the translator, once in each process; a `ModelLoader`.
      field: The field to translate, or several.
      output: What the field of the translation is called; the names of the others begin with it,
        `translation_score` for example. Of several fields, the field's name stands before it.
      options: How texts are treated.
      with_failed: Whether rows of which a text failed have an output of their own: then the
        transform returns `TranslatedRows`.
      min_batch: Rows that are translated at once, at least, where a bundle has so many.
      max_batch: Rows that are translated at once, at most.
    """

    load_translator: Callable[[], Translator]
    _: dataclasses.KW_ONLY
    field: str | Sequence[str]
    output: str = "translation"
    options: TextOptions = dataclasses.field(default_factory=TextOptions)
    with_failed: bool = False
    min_batch: int = MIN_BATCH
    max_batch: int = MAX_BATCH

    def __post_init__(self) -> None:
        _check_batches(self)
        self.fields  # noqa: B018 -- it checks them

    @property
    def fields(self) -> RowFields:
        """The fields that are translated and added."""
        decoding = getattr(self.load_translator, "decoding", None)
        return RowFields(
            fields=(self.field,) if isinstance(self.field, str) else tuple(self.field),
            output=self.output,
            has_n_best=decoding is not None and decoding.n_best > 1,
        )

    def expand(self, rows_in: beam.PCollection[Row]) -> beam.PCollection[Row] | TranslatedRows:
        """Wires the transform."""
        _check_reachable(self.options.glossary, options=rows_in.pipeline.options)
        kind = rows.translated_type(rows_in.element_type, fields=self.fields)
        lists = rows.find_lists(rows_in.element_type, fields=self.fields)
        translate = beam.ParDo(_TranslateRows(self, lists)).with_output_types(kind)
        if self.with_failed:
            translate = translate.with_output_types(kind, **{_FAILED: kind})
            translate = translate.with_outputs(_FAILED, main=_TRANSLATED)
        found = _in_batches(rows_in, translate, sizes=self)
        return TranslatedRows(found[_TRANSLATED], found[_FAILED]) if self.with_failed else found


_TRANSLATED, _FAILED = TranslatedRows._fields
_Timed = tuple[Timestamp, Any]  # an element, and its time


def _check_batches(config: TranslateTexts | TranslateRows) -> None:
    least, most = config.min_batch, config.max_batch
    require(1 <= least <= most, "`min_batch` must be 1 to `max_batch`", f"{least} and {most}")


def _check_reachable(path: str | None, *, options: PipelineOptions) -> None:
    """Checks that workers of Dataflow, which are other machines, can read a glossary.

    Args:
      path: That of `TextOptions`.
      options: The pipeline's.

    Raises:
      UserError: It is a file of this machine.
    """
    runner = str(options.view_as(StandardOptions).runner or "")
    if path is not None and is_local(path) and "dataflow" in runner.lower():
        raise UserError(
            f"`glossary` {path} is of this machine, and the workers of Dataflow are others: name a "
            "path of gs://"
        )


def _in_batches(
    elements: beam.PCollection[Any],
    translate: beam.PTransform,
    *,
    sizes: TranslateTexts | TranslateRows,
) -> Any:
    return (
        elements
        | "Note times" >> beam.Map(_with_time)
        | "Batch"
        >> beam.BatchElements(min_batch_size=sizes.min_batch, max_batch_size=sizes.max_batch)
        | "Translate" >> translate
    )


def _with_time(element: Any, time: Any = beam.DoFn.TimestampParam) -> _Timed:
    return time, element


class _TranslateBatch(TranslatorDoFn):
    """The base of what translates batches; a batch itself has the time of its window's end."""

    def __init__(self, config: TranslateTexts | TranslateRows) -> None:
        super().__init__(config.load_translator)
        self._load = config.load_translator
        self._options = config.options
        self._glossary = NamedGlossary.of(config.options.glossary)

    def setup(self) -> None:
        super().setup()
        self._texts = TextModel.of(
            self.translator, load=self._load, options=self._options, glossary=self._glossary
        )

    def teardown(self) -> None:
        self.__dict__.pop("_texts", None)
        super().teardown()

    def translate(self, texts: Sequence[str | bytes | None]) -> list[TranslatedText]:
        return self._texts.translate(texts).translations

    def count(self, found: Iterable[TranslatedText]) -> None:
        self.count_statuses(collections.Counter(each.status for each in found))
        self.count_flags(collections.Counter(flag for each in found for flag in each.flags))


class _TranslateTexts(_TranslateBatch):
    def __init__(self, config: TranslateTexts) -> None:
        super().__init__(config)
        self._is_keyed = config.is_keyed

    def process(
        self, batch: list[_Timed], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        elements = [element for _, element in batch]
        found = self.translate([each[1] for each in elements] if self._is_keyed else elements)
        self.count(found)
        for (time, element), text in zip(batch, found, strict=True):
            made = (element[0], text) if self._is_keyed else text
            yield WindowedValue(made, time, (window,))


class _TranslateRows(_TranslateBatch):
    def __init__(self, config: TranslateRows, lists: frozenset[str]) -> None:
        super().__init__(config)
        self._fields = dataclasses.replace(config.fields, lists=lists)
        self._with_failed = config.with_failed

    def process(
        self, batch: list[_Timed], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue | TaggedOutput]:
        opened = [OpenRow.of(row, fields=self._fields) for _, row in batch]
        found = iter(self.translate([cell for row in opened for cell in row.cells]))
        for (time, _), row in zip(batch, opened, strict=True):
            texts = row.take(found)
            self.count(texts)
            made = WindowedValue(row.with_translations(texts), time, (window,))
            is_failed = self._with_failed and any(each.status == FAILED for each in texts)
            yield TaggedOutput(_FAILED, made) if is_failed else made
