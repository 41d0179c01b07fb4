"""TranslateRows in local pipelines, and the glossaries of all transforms."""

import collections
import functools
from typing import NamedTuple, Optional

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from fakes import Reverser, reverse
from models import model_texts

from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference import text_model, transforms
from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.inference.transforms import TranslateRows
from tt.pipelines.streams.connectors import TranslateMessages
from tt.pipelines.texts.options import TextOptions

pytestmark = pytest.mark.slow

POISONED = functools.partial(Reverser, poison="x")


class Article(NamedTuple):
    """A row with a schema."""

    id: int
    text: str
    tags: list[str]


beam.coders.registry.register_coder(Article, beam.coders.RowCoder)


def run(build):
    """Run a pipeline in this process, and return its counters."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    counts = collections.Counter()
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.namespace == "tt":
            counts[counter.key.metric.name] += counter.committed
    return {name: count for name, count in counts.items() if count}


def test_texts_are_translated_and_counted():
    texts = ["ab", None, b"cd", "", b"\xff", "ab", "5", "x"]

    def build(pipeline):
        rows = pipeline | beam.Create([{"text": text} for text in texts])
        found = rows | TranslateRows(POISONED, field="text")
        assert_that(
            found | beam.Map(lambda row: (row["translation"], row["translation_status"])),
            equal_to([
                ("ba", "ok"), (None, "null"), ("dc", "ok"), ("", "empty"), (None, "failed"),
                ("ba", "ok"), ("5", "copied"), (None, "failed"),
            ]),
        )  # fmt: skip

    assert run(build) == {
        "rows_ok": 3, "rows_null": 1, "rows_empty": 1, "rows_copied": 1, "rows_failed": 2,
    }  # fmt: skip


def test_each_row_is_output_once_with_its_translation():
    rows = [{"id": i, "text": "poison x" if i == 3 else f"row {i}"} for i in range(20)]

    def build(pipeline):
        found = pipeline | beam.Create(rows) | TranslateRows(POISONED, field="text")
        assert found.element_type == beam.typehints.Dict[str, beam.typehints.Any]
        assert_that(
            found | beam.Map(lambda row: (row["id"], row["translation"])),
            equal_to([(i, None if i == 3 else reverse(f"row {i}")) for i in range(20)]),
        )

    counts = run(build)
    assert (counts["rows_ok"], counts["rows_failed"]) == (19, 1)


def test_failed_rows_can_have_a_separate_output():
    rows = [beam.Row(id=0, a="ab", b="x"), beam.Row(id=1, a="ab", b="cd")]

    def build(pipeline):
        found = pipeline | beam.Create(rows) | TranslateRows(
            POISONED, field=("a", "b"), with_failed=True
        )  # fmt: skip
        good = found.translated | beam.Map(lambda row: (row.id, row.a_translation))
        assert_that(good, equal_to([(1, "ba")]), label="good")
        bad = found.failed | beam.Map(
            lambda row: (row.id, row.a_translation, row.b_translation, row.b_translation_error)
        )
        assert_that(bad, equal_to([(0, "ba", None, "ValueError: bad")]), label="bad")

    assert run(build) == {"rows_ok": 3, "rows_failed": 1}


def test_rows_with_a_schema_keep_it_across_workers():
    rows = [Article(i, f"row {i}", ["ab", "cd"]) for i in range(5)]

    def build(pipeline):
        found = (
            pipeline
            | beam.Create(rows).with_output_types(Article)
            | TranslateRows(Reverser, field=["text", "tags"])
        )
        types = dict(found.element_type._fields)
        assert types["text_translation"] == (str | None)
        assert types["tags_translation_status"] == collections.abc.Sequence[str]
        # The reshuffle needs a coder, so it encodes the rows by their schema.
        spread = found | beam.Reshuffle()
        assert isinstance(spread.element_type, RowTypeConstraint)
        assert_that(
            spread
            | beam.Map(
                lambda row: (
                    row.id,
                    row.text_translation,
                    list(row.tags_translation),
                    row.text_translation_score,
                )
            ),
            equal_to([(i, reverse(f"row {i}"), ["ba", "dc"], -5.0) for i in range(5)]),
        )

    run(build)


def test_n_best_translations_cross_workers():
    class Best(Reverser):
        decoding = Decoding(n_best=2)

    class Load:
        decoding = Best.decoding

        def __call__(self):
            return Best(n_best=2)

    def build(pipeline):
        found = pipeline | beam.Create([beam.Row(text="ab")]) | TranslateRows(Load(), field="text")
        assert_that(
            found
            | beam.Reshuffle()
            | beam.Map(lambda row: [(best.text, best.score) for best in row.translation_n_best]),
            equal_to([[("ba", -2.0), ("ba'", -3.0)]]),
        )

    run(build)


def test_timestamps_and_windows_are_kept():
    events = [(3, "ab"), (14, "cd"), (15, "ef")]

    def build(pipeline):
        found = (
            pipeline
            | beam.Create(events)
            | beam.MapTuple(lambda time, text: TimestampedValue({"text": text}, time))
            | beam.WindowInto(FixedWindows(10))
            | TranslateRows(Reverser, field="text")
            | beam.Map(
                lambda row, time=beam.DoFn.TimestampParam, window=beam.DoFn.WindowParam: (
                    row["translation"], int(time), int(window.start)
                )
            )
        )  # fmt: skip
        assert_that(found, equal_to([("ba", 3, 0), ("dc", 14, 10), ("fe", 15, 10)]))

    run(build)


@pytest.mark.parametrize("with_failed", [False, True])
def test_reading_translating_and_writing_are_one_stateless_stage(with_failed):
    """At-least-once delivery then needs only the source's checkpoints, and a bundle is a batch."""
    pipeline = beam.Pipeline(runner="FnApiRunner")
    step = TranslateRows(Reverser, field="text", with_failed=with_failed)
    found = pipeline | beam.Impulse() | "Read" >> beam.FlatMap(lambda _: [{"text": "a"}]) | step
    outputs = found if isinstance(found, tuple) else (found,)
    for i, output in enumerate(outputs):
        _ = output | f"Write {i}" >> beam.Map(print)
    _, stages = fn_runner.FnApiRunner().create_stages(pipeline.to_runner_api())
    (stage,) = [stage for stage in stages if "Translate" in stage.name]
    for name in ("Read", "Note-times", "Batch", "Write-0"):
        assert name in stage.name
    assert not stage.is_stateful()


def check_same(key, results):
    """Check that the results of a text in different batches differ only by rounding."""
    first, *others = [dict(row) for row in results]
    score = first.pop("translation_score")
    for other in others:
        assert other.pop("translation_score") == pytest.approx(score, abs=1e-4)
        assert other == first
    Metrics.counter("tt", "texts_same").inc(len(others) == 2)


def test_translation_does_not_depend_on_the_batch(random_model, monkeypatch):
    texts = model_texts(40)
    loader = ModelLoader(str(random_model), Decoding(beam_size=2, max_extra_tokens=3))

    def build(pipeline):
        rows = [{"key": key, "text": text} for key, text in enumerate(texts)]
        created = pipeline | beam.Create(rows)
        found = []
        for size in (1, 3, 40):
            monkeypatch.setattr(transforms, "MIN_BATCH", size)
            monkeypatch.setattr(transforms, "MAX_BATCH", size)
            found.append(created | f"By {size}" >> TranslateRows(loader, field="text"))
        keyed = found | beam.Flatten() | beam.WithKeys(lambda row: row["key"])
        keyed | beam.GroupByKey() | beam.MapTuple(check_same)

    counts = run(build)
    assert counts["texts_same"] == 40
    assert counts["rows_ok"] > 60


class Tagged(NamedTuple):
    """A row whose list may be missing."""

    id: int
    tags: Optional[list[str]]  # noqa: UP045 -- as users of Beam write it


beam.coders.registry.register_coder(Tagged, beam.coders.RowCoder)


def test_list_in_a_schema_may_be_none():
    def build(pipeline):
        tagged = [Tagged(1, ["ab", "cd"]), Tagged(2, None), Tagged(3, [])]
        found = (
            pipeline
            | beam.Create(tagged).with_output_types(Tagged)
            | TranslateRows(Reverser, field="tags")
        )
        assert isinstance(found.element_type, RowTypeConstraint)
        coded = found | beam.Reshuffle() | beam.Map(lambda row: row._asdict())
        names = ("tags", "translation", "translation_status", "translation_flags")
        assert_that(
            coded | beam.Map(lambda row: [[*row[name]] if row[name] else None for name in names]),
            equal_to([
                [["ab", "cd"], ["ba", "dc"], ["ok", "ok"], [[], []]],
                [None, [None], ["null"], [[]]],
                [None, None, None, None],
            ]),
        )  # fmt: skip

    assert run(build)["rows_null"] == 1


def test_text_options_and_glossary_apply(tmp_path):
    (tmp_path / "terms.tsv").write_text("spam\tegg\n")
    options = TextOptions(glossary=str(tmp_path / "terms.tsv"), on_too_long="skip",
                          max_source_tokens=12)  # fmt: skip

    def build(pipeline):
        step = TranslateRows(Reverser, field="text", options=options)
        found = pipeline | beam.Create([{"text": "ab spam cd"}, {"text": "abcdefghijkl"}]) | step
        assert_that(
            found | beam.Map(lambda row: (row["translation"], row["translation_status"])),
            equal_to([("ba egg dc", "ok"), (None, "too_long")]),
        )

    run(build)
    (tmp_path / "terms.tsv").unlink()
    with pytest.raises(UserError, match=r"terms\.tsv"):
        build(beam.Pipeline(runner="FnApiRunner"))


def test_changed_glossary_on_a_worker_is_refused(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("spam\tegg\n")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    step = TranslateRows(Reverser, field="text", options=TextOptions(glossary=str(path)))
    _ = pipeline | beam.Create([{"text": "ab spam cd"}]) | step
    path.write_text("spam\tham\n")
    text_model._read_same.cache_clear()  # as if the worker were another process
    with pytest.raises(Exception, match=r"terms\.tsv on this worker differs from the file"):
        pipeline.run()


@pytest.mark.parametrize("name", ["rows", "messages"])
def test_serialized_pipeline_does_not_contain_the_glossary(tmp_path, name):
    sizes = []
    for count in (1, 100_000):
        path = tmp_path / "terms.tsv"
        path.write_text("".join(f"term {n}\tBegriff {n}\n" for n in range(count)))
        options = TextOptions(glossary=str(path))
        step = {
            "rows": lambda options=options: TranslateRows(Reverser, field="text", options=options),
            "messages": lambda options=options: TranslateMessages(
                load_translator=Reverser, options=options, max_batch=8
            ),
        }[name]()
        pipeline = beam.Pipeline(runner="FnApiRunner")
        _ = pipeline | beam.Create([]) | step
        sizes.append(len(pipeline.to_runner_api().SerializeToString()))
    print(f"{name}: {sizes[0]:,} bytes with a term, {sizes[1]:,} with {count:,}")
    assert abs(sizes[1] - sizes[0]) <= 200
    assert sizes[1] < 60_000


def test_rows_with_an_unsuitable_schema_are_refused_before_the_run():
    articles = beam.Pipeline(runner="FnApiRunner") | beam.Create([Article(1, "a", [])])
    articles.element_type = Article
    with pytest.raises(UserError, match=r"^the rows have no field body. Choose a `field` from: id"):
        _ = articles | "1" >> TranslateRows(Reverser, field="body")
    again = articles | "2" >> TranslateRows(Reverser, field="text")
    with pytest.raises(UserError, match=r"already have a field translation. Choose another `outp"):
        _ = again | "3" >> TranslateRows(Reverser, field="text")
    _ = again | "4" >> TranslateRows(Reverser, field="text", output="once_more")
