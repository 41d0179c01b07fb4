"""Normalization, vocabularies, and their training on a deterministic sample."""

import collections
import dataclasses
import itertools
import pickle
import random
import re
import sys
import unicodedata

import pyarrow as pa
import pytest
from corpora import ONE_THREAD, TWO_THREADS, digest, options, preprocess, write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import train

from tt.model.errors import UserError
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    UNK_ID,
    VOCABULARY_FILE,
    Vocabulary,
    load_vocabularies,
    vocabulary_json,
)
from tt.pipelines.preprocess.vocabularies import (
    Sample,
    distinct_lines,
    has_large_script,
    merge_samples,
    train_vocabulary,
)

WORDS = [
    a + b + c
    for a in ("", "un", "re")
    for b in ("do", "see", "take", "go", "lig")
    for c in ("", "s", "ing")
]


def sentences(count):
    chooser = random.Random(5)
    return [" ".join(chooser.choices(WORDS, k=chooser.randint(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / SHARED_MODEL
    path.write_bytes(train(sentences(500)))
    return path


# Normalization.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("  a\u00a0 b\u200b\t", "a b"),
        ("a\u2028b\rc\x0bd\x85e", "a b c d e"),
        ("a\x00\x1bb\u00adc\ufeff", "abc"),
        ("\u200fab\u202ecd\u2066e\ufffa", "abcde"),  # direction and annotation marks
        ("e\u0301", "\u00e9"),
        ("cafe\u200b\u0301 x", "caf\u00e9 x"),  # NFC composes after the removal of U+200B
        ("می\u200cخواهم", "می\u200cخواهم"),  # ZWNJ belongs to the spelling
        ("\u3000中 文", "中 文"),
        ("a\u2581b \u2581c\u2581", "a b c"),  # SentencePiece's mark for a space
        *((text, text) for text in ("5 m²", "wait…", "ﬁn", "１２３ＡＢＣ", "½ ℃ ™", "a\u200db")),
    ],
)
def test_normalization(text, expected):
    assert TextNormalization()([text]) == [expected]


def test_normalization_options():
    texts = ["ﬁ  e\u0301"]
    assert TextNormalization(clean_whitespace=False)([" a\u2581\t b ", " \n\u2581"]) == [
        *(" a \t b ", "")
    ]
    assert TextNormalization(unicode_form="NFKC")(texts) == ["fi \u00e9"]
    assert TextNormalization(unicode_form="none", clean_whitespace=False)(texts) == texts
    rule = r"`unicode_form` must be one of NFC, NFKC, none\. Received: NFD"
    with pytest.raises(UserError, match=rule):
        TextNormalization(unicode_form="NFD")


EVERY_NORMALIZATION = [
    TextNormalization(unicode_form=form, clean_whitespace=clean, lowercase=lower)
    for form in ("NFC", "NFKC", "none")
    for clean in (True, False)
    for lower in (True, False)
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The DOG, 2 x", "the dog, 2 x"),
        ("STRASSE Straße ẞ", "strasse straße ß"),
        ("İstanbul", "i\u0307stanbul"),  # "İ" becomes two code points
        ("ΟΔΟΣ ΣΟΦΟΣ", "οδος σοφος"),  # the final sigma
        ("ΑΣ\u200bΑ", "ασα"),  # U+200B is removed first, so the sigma is not final
        ("A\u0300E\u0301", "\u00e0\u00e9"),
        ("\u200b İ  \u0301Ǆ", "i\u0307 \u0301ǆ"),
        ("J\u030c", "\u01f0"),  # only the small letter exists with a caron
        ("", ""),
    ],
)
def test_lower_case(text, expected):
    normalize = TextNormalization(lowercase=True)
    assert normalize([text, "UP"]) == [expected, "up"]
    assert unicodedata.normalize("NFC", expected) == expected


@given(
    normalize=st.sampled_from(EVERY_NORMALIZATION),
    texts=st.lists(
        st.text()
        | st.text("ae\u0301\u0308\u200b\u00ad \u1100\u1161\u061c")
        | st.text("aAJ\u0130I\u0307\u030cΑΣσß\u1e9e™\u212a\u0345\u200b\u00ad \u00a0")
    ),
)
def test_normalization_is_idempotent_and_row_by_row(normalize, texts):
    once = normalize(texts)
    assert normalize(once) == once
    assert [normalize([text])[0] for text in texts] == once
    if normalize.unicode_form != "none":
        assert [unicodedata.normalize(normalize.unicode_form, text) for text in once] == once
    if normalize.clean_whitespace:
        assert [" ".join(text.split()) for text in once] == once
    if normalize.lowercase:
        assert [text.lower() for text in once] == once
        with_case = dataclasses.replace(normalize, lowercase=False)
        assert normalize(with_case(texts)) == normalize.lower(with_case(texts)) == once


def test_characters_that_change_are_stable_afterwards():
    points = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]
    changed = [c for c in points if unicodedata.normalize("NFKC", c.lower()) != c]
    assert len(changed) > 5000
    for normalize in EVERY_NORMALIZATION:
        once = normalize([f"a{c}b" for c in changed])
        assert normalize(once) == once


# Vocabularies.


def test_special_ids(model_file):
    vocabulary = Vocabulary(model_file, TextNormalization())
    assert vocabulary.piece_count == 60
    assert vocabulary.size == 64
    [[first, *middle, last]] = vocabulary.encode(["do undo ☃"])
    assert (first, last) == (BOS_ID, EOS_ID)
    assert UNK_ID in middle
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(middle)
    assert vocabulary.encode([""]) == [[BOS_ID, EOS_ID]]


def test_load_vocabularies(model_file, tmp_path):
    normalization = TextNormalization(unicode_form="NFKC")
    settings_file = tmp_path / VOCABULARY_FILE
    with pytest.raises(UserError, match=r"has no vocabulary\.json, so it is not a dataset folder"):
        load_vocabularies(tmp_path)
    settings_file.write_text(vocabulary_json(shared=True, normalization=normalization))
    (tmp_path / SHARED_MODEL).write_bytes(model_file.read_bytes())
    loaded = load_vocabularies(tmp_path)
    assert loaded.is_shared
    assert loaded.files == [VOCABULARY_FILE, SHARED_MODEL]
    assert loaded.source.normalization == normalization

    settings_file.write_text(vocabulary_json(shared=False, normalization=normalization))
    for name in (SOURCE_MODEL, TARGET_MODEL):
        (tmp_path / name).write_bytes(model_file.read_bytes())
    loaded = load_vocabularies(tmp_path)
    assert not loaded.is_shared
    assert loaded.files == [VOCABULARY_FILE, SOURCE_MODEL, TARGET_MODEL]

    settings_file.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load_vocabularies(tmp_path)


# Round trips of texts.

KEPT = TextNormalization(clean_whitespace=False)
LETTERS = "abcäßñ中文я²½…ﬁ５Ａ™℃\u0301\u200c\u200d👍'\"«»-"
LINES = [f"{a}{b} {b}{a}" for a in LETTERS for b in LETTERS]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Vocabularies of each type, trained with the defaults and for kept white space."""
    folder = tmp_path_factory.mktemp("vocabularies")
    found = {}
    for kind, size in (("unigram", 100), ("bpe", 100), ("char", 100)):
        for normalization in (TextNormalization(), KEPT):
            path = folder / f"{kind}-{normalization.clean_whitespace}.spm"
            path.write_bytes(
                train(
                    normalization(LINES), kind=kind, size=size, rule="identity",
                    keep_whitespace=not normalization.clean_whitespace,
                )
            )  # fmt: skip
            found[kind, normalization] = Vocabulary(path, normalization)
    return found


@pytest.mark.parametrize("normalization", [TextNormalization(), KEPT], ids=["clean", "kept"])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
@settings(max_examples=40)
@given(data=st.data())
def test_round_trip_returns_the_normalized_text(vocabularies, kind, normalization, data):
    vocabulary = vocabularies[kind, normalization]
    texts = st.text(LETTERS + "    \t\n\r\u2581")
    text = data.draw(texts)
    [ids] = vocabulary.encode([text])
    assert UNK_ID not in ids
    assert vocabulary.decode([ids]) == normalization([text])
    flat = vocabulary.encode_flat(normalization([text]))
    assert flat.ids.tolist() == ids


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc_cf"])
def test_other_rules_change_white_space(tmp_path, rule):
    path = tmp_path / SHARED_MODEL
    path.write_bytes(train(LINES, size=100, rule=rule))
    vocabulary = Vocabulary(path, KEPT)
    assert vocabulary.decode(vocabulary.encode(["a  b"])) == ["a b"]


# The sample.


@settings(max_examples=100)
@given(
    lines=st.lists(st.text(max_size=3)),
    cuts=st.lists(st.integers(0, 50)),
    workers=st.lists(st.integers(0, 2), min_size=1),
    limit=st.integers(1, 9),
    is_sent=st.booleans(),
)
def test_sample_does_not_depend_on_the_distribution_of_work(lines, cuts, workers, limit, is_sent):
    samples = [[] for _ in range(3)]  # one list per worker
    bounds = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    for unit, (begin, end) in enumerate(itertools.pairwise(bounds)):
        rejected = collections.Counter(too_long=1)
        sample = Sample({"source": distinct_lines(lines[begin:end], limit)}, rejected)
        of_worker = samples[workers[unit % len(workers)]]
        of_worker.append(pickle.loads(pickle.dumps(sample)) if is_sent else sample)
    merged = merge_samples([merge_samples(some, limit) for some in samples[::-1]], limit)
    expected = distinct_lines(lines).slice(0, limit)
    assert expected.num_rows == min(limit, len(set(lines)))
    assert merged.tables["source"].equals(expected)
    assert merged.rejected == {"too_long": len(bounds) - 1}


def test_sample_of_many_lines_is_small():
    """The samples are small in memory and when pickled for another worker."""
    units = [distinct_lines([f"{unit} {i}" for i in range(1000)], 100) for unit in range(100)]
    before = pa.total_allocated_bytes()

    def read_samples():
        for table in units:
            yield Sample({"source": table.take(pa.array(range(100)))}, collections.Counter())
            assert pa.total_allocated_bytes() - before < 10 * table.nbytes

    merged = merge_samples(read_samples(), 100)
    assert merged.tables["source"].num_rows == 100
    assert max(len(pickle.dumps(table)) for table in [*units, merged.tables["source"]]) < 10_000


# Training.


@pytest.mark.parametrize(("kind", "pieces"), [("unigram", 60), ("bpe", 60), ("char", None)])
def test_training_has_the_requested_size_and_ignores_the_order_of_lines(tmp_path, kind, pieces):
    lines = sentences(300)
    model = train(lines, kind=kind)
    assert model == train(lines[::-1], kind=kind)  # The order of the lines has no influence.
    (tmp_path / "x.spm").write_bytes(model)
    characters = set("".join(lines)) - {" "}
    expected = pieces or 4 + 1 + len(characters)  # special tokens, and the mark for a space
    assert Vocabulary(tmp_path / "x.spm", TextNormalization()).piece_count == expected


HAN = [" ".join(chr(0x4E00 + 7 * i + k) for k in range(7)) for i in range(80)]
MISTAKES = {
    "too large": (None, {"vocabulary_size": 5000}, "allow at most"),
    "too small": (None, {"vocabulary_size": 12, "vocabulary_type": "bpe"}, "are necessary"),
    "many characters": (HAN, {"vocabulary_size": 100, "character_coverage": 1.0}, "characters"),
    "placeholders": (None, {"vocabulary_size": 8, "vocabulary_type": "char"}, "for symbols"),
    "symbols": (
        None, {"vocabulary_size": 40, "user_symbols": tuple(f"<s{i}>" for i in range(60))},
        "are necessary",
    ),
    "bytes": (None, {"vocabulary_size": 200, "byte_fallback": True}, "are necessary"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_advice_of_the_trainer_works(mistake):
    lines, changes, words = MISTAKES[mistake]
    lines = distinct_lines(lines or sentences(60))
    with pytest.raises(UserError, match=words) as caught:
        train_vocabulary(lines, options("out", **changes), file=SHARED_MODEL)
    advised = int(re.search(r"Set `vocabulary_size=(\d+)`", str(caught.value))[1])
    assert "vocab_size" not in str(caught.value)
    changes = changes | {"vocabulary_size": advised}
    assert train_vocabulary(lines, options("out", **changes), file=SHARED_MODEL)


def test_long_lines_train_a_vocabulary(tmp_path):
    """SentencePiece drops lines of more than 4,192 bytes by default."""
    lines = [" ".join(sentences(300)[i:]) for i in range(30)]
    assert min(map(len, lines)) > 4192
    filters = {"max_characters": 60_000, "max_tokens": 60_000}
    corpus = write_tsv(tmp_path / "a.tsv", lines, lines)
    chosen = options(tmp_path / "out", filters=filters, vocabulary_size=40)
    assert preprocess(sources=[corpus], options=chosen).pairs_kept == len(lines)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_default_size_is_reduced_to_the_largest_possible(tmp_path, kind):
    """The next larger size is an error."""
    model = train(sentences(50), size=None, kind=kind)
    (tmp_path / "x.spm").write_bytes(model)
    pieces = Vocabulary(tmp_path / "x.spm", TextNormalization()).piece_count
    assert 8 < pieces < 8000
    assert train(sentences(50), size=pieces, kind=kind) == model
    with pytest.raises(UserError, match=f"{pieces + 1} tokens: .* at most {pieces}. Set"):
        train(sentences(50), size=pieces + 1, kind=kind)


def test_default_character_coverage_depends_on_the_script(tmp_path):
    assert has_large_script(["犬が好きです"])
    assert has_large_script(["개를 좋아해요"])
    assert not has_large_script(["я люблю собак", "I like 犬"])
    assert not has_large_script([])
    # There are 300 common characters. The rare one occurs once in 90,000, below the limit.
    common = [chr(0x4E00 + i) for i in range(300)]
    lines = ["".join(common[i:] + common[:i]) for i in range(300)] + ["\u9fa5"]
    sizes = {}
    for coverage in (None, 1.0):
        path = tmp_path / f"{coverage}.spm"
        path.write_bytes(train(lines, kind="char", size=1000, character_coverage=coverage))
        vocabulary = Vocabulary(path, TextNormalization())
        sizes[coverage] = vocabulary.piece_count
        assert (UNK_ID in vocabulary.encode(["\u9fa5"])[0]) == (coverage is None)
    assert sizes[None] == sizes[1.0] - 1


# Vocabularies in the job.


def test_default_vocabulary_size_of_a_small_corpus(tmp_path, monkeypatch, corpus):
    made = {}
    for name, arguments in (("one", ONE_THREAD), ("two", TWO_THREADS)):
        made[name] = preprocess(
            sources=[corpus],
            options=options(tmp_path / name, vocabulary_size=None),
            beam_arguments=arguments,
        )
    size = made["one"].source_vocabulary_size
    assert 48 < size < 8000
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    # An explicit size gives the same vocabulary, and the same command finds a finished dataset.
    pieces = load_vocabularies(tmp_path / "one").source.piece_count
    preprocess(sources=[corpus], options=options(tmp_path / "same", vocabulary_size=pieces))
    assert digest(tmp_path / "same") == digest(tmp_path / "one")
    monkeypatch.setattr("tt.pipelines.jobs.running.run_pipeline", None)
    again = preprocess(sources=[corpus], options=options(tmp_path / "one", vocabulary_size=None))
    assert again == made["one"]
    # With an explicit size of 8000, the smaller vocabulary is another dataset.
    with pytest.raises(UserError, match=r"`vocabulary_size` was not set and is now 8000"):
        preprocess(sources=[corpus], options=options(tmp_path / "one", vocabulary_size=8000))
    with pytest.raises(UserError, match=rf"`vocabulary_size` was {pieces} and is now not set"):
        preprocess(sources=[corpus], options=options(tmp_path / "same", vocabulary_size=None))
