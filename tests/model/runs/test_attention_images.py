"""Heat maps of attention: the colour of every cell, the labels, and whose weights are drawn."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import ImageFont
from toy import write_vocabulary

from model.runs import attention_images
from model.runs.attention_images import (
    CELL,
    MAX_PIECES,
    attention_image,
    cell_corner,
    colours,
    piece_labels,
    sample_attention,
)
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair
from model.transformer.config import TransformerConfig
from model.transformer.transformer import Transformer

LIGHTEST, DARKEST = [255, 255, 255], [0, 0, 4]  # the ends of the colour map


@pytest.fixture
def only_pillows_font(monkeypatch):
    """A machine without fonts: Pillow's own one draws ASCII."""
    font = ImageFont.load_default(attention_images.FONT_SIZE)
    monkeypatch.setattr(attention_images, "_fonts", lambda: [(font, font)])


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def letters(count):
    return [chr(ord("a") + i % 26) for i in range(count)]


def uniform(heads, targets, sources):
    return np.full([heads, targets, sources], 1 / sources, np.float32)


def draw(weights, **changes):
    _, targets, sources = weights.shape
    labels = {"source": letters(sources), "target": letters(targets)}
    return attention_image(weights, **(labels | changes))


def cell(image, **place):
    x, y = cell_corner(**place)
    return image[y : y + CELL - 1, x : x + CELL - 1]


def test_each_cell_has_exactly_the_colour_of_its_weight():
    # Five heads, so that the last one stands in a second row of panels; each has its own cell.
    places = {0: (0, 0), 1: (1, 3), 2: (2, 0), 3: (0, 3), 4: (2, 2)}
    weights = np.zeros([5, 3, 4])
    for head, (row, column) in places.items():
        weights[head, row, column] = 1

    image = draw(weights)

    for head, row, column in np.ndindex(weights.shape):
        seen = cell(image, head=head, row=row, column=column, targets=3, sources=4)
        expected = DARKEST if places[head] == (row, column) else LIGHTEST
        assert seen.shape == (CELL - 1, CELL - 1, 3)
        assert (seen == expected).all()


def test_colours_get_darker_with_the_weight():
    colour_map = colours(np.linspace(0, 1, 201))

    luminance = colour_map @ [0.2126, 0.7152, 0.0722]
    assert colour_map.dtype == np.uint8
    assert colour_map[[0, -1]].tolist() == [LIGHTEST, DARKEST]
    # The fifth of nine anchors is the middle; halfway from the first to the second is a sixteenth.
    assert colours(np.array([0.5, 1 / 16])).tolist() == [[181, 54, 122], [254, 224, 195]]
    assert (np.diff(luminance) < 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shape_and_dtype(dtype):
    image = draw(uniform(8, 20, 20).astype(dtype))

    # 4 x 2 panels, each a label strip, 20 cells and a margin.
    assert image.shape == (32 + 2 * (20 + 92 + 320 + 14), 4 * (92 + 320 + 14), 3)
    assert image.shape[0] * image.shape[1] < 2_000_000
    assert image.dtype == np.uint8


def test_more_pieces_and_more_heads_grow_the_picture():
    height, width, _ = draw(uniform(4, 5, 6)).shape

    assert draw(uniform(4, 6, 6)).shape[:2] == (height + CELL, width)
    assert draw(uniform(4, 5, 7)).shape[:2] == (height, width + 4 * CELL)
    assert draw(uniform(5, 5, 6)).shape[0] > height
    assert draw(uniform(3, 5, 6)).shape[1] < width


@pytest.mark.parametrize(
    "change", [{"source": ["a", "x"]}, {"target": ["a", "b", "x"]}, {"title": "x"}],
    ids=["source", "target", "title"],
)  # fmt: skip
def test_labels_and_title_are_drawn_outside_of_the_cells(change):
    weights = uniform(2, 3, 2)

    plain, changed = draw(weights), draw(weights, **change)

    assert plain.shape == changed.shape
    assert (plain != changed).any()
    x, y = cell_corner(head=0, row=0, column=0, targets=3, sources=2)
    panel = np.s_[y : y + 3 * CELL, x : x + 2 * CELL]
    np.testing.assert_array_equal(plain[panel], changed[panel])


def test_a_label_stands_at_its_row_and_column():
    weights = uniform(1, 3, 4)

    changed = draw(weights) != draw(weights, source=list("abxd"), target=list("axc"))

    left, top = cell_corner(head=0, row=0, column=0, targets=3, sources=4)
    x, y = cell_corner(head=0, row=1, column=2, targets=3, sources=4)
    rows_beside = np.nonzero(changed[top:, :left].any(axis=(1, 2)))[0] + top
    columns_above = np.nonzero(changed[:top, left:].any(axis=(0, 2)))[0] + left
    assert y <= rows_beside.min() <= rows_beside.max() < y + CELL
    assert x <= columns_above.min() <= columns_above.max() < x + CELL
    assert not changed[top:, left:].any()


def test_a_long_title_fits():
    narrow, wide = draw(uniform(1, 2, 2)), draw(uniform(1, 2, 2), title="long title " * 9)

    assert wide.shape[1] > narrow.shape[1]
    assert (wide[:, -1] == 255).all()


def test_a_long_label_is_cut():
    first, second = (draw(uniform(1, 1, 2), source=["a", "x" * n]) for n in (50, 60))

    np.testing.assert_array_equal(first, second)


def test_long_sentences_are_cut_and_the_title_says_so():
    short, long = uniform(2, 3, MAX_PIECES), np.zeros([2, 3, 57])
    long[..., :MAX_PIECES] = short
    note = f"map (first {MAX_PIECES} of 57 source pieces)"

    np.testing.assert_array_equal(draw(long, title="map"), draw(short, title=note))

    long = np.moveaxis(long, 1, 2)
    note = f"map (first {MAX_PIECES} of 57 target pieces)"
    np.testing.assert_array_equal(draw(long, title="map"), draw(long[:, :MAX_PIECES], title=note))


def test_what_cannot_be_drawn_is_numbered(only_pillows_font):
    weights = uniform(1, 2, 3)

    image = draw(weights, source=["a", "中", "ü"], target=["x", "Ж"], title="über")

    expected = draw(weights, source=["a", "#1", "#2"], target=["x", "#1"], title="?ber")
    np.testing.assert_array_equal(image, expected)


def test_a_font_of_the_machine_draws_what_pillows_own_cannot():
    try:
        ImageFont.truetype("DejaVuSans.ttf")
    except OSError:
        pytest.skip("no DejaVu Sans here")
    text = "_Größe_жизнь_ψυχή"

    assert attention_images._drawable(text, "#0")[0] == text
    # An unassigned plane: in no font.
    assert attention_images._drawable("a\U000e1234", "#0")[0] == "#0"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full([2, 3], 0.5), r"\[heads, 2, 3\].*Received: \[2, 3\]"),
        (np.full([1, 3, 2], 0.5), r"\[heads, 2, 3\].*Received: \[1, 3, 2\]"),
        (np.full([1, 1, 2, 3], 0.5), r"Received: \[1, 1, 2, 3\]"),
        (np.zeros([0, 2, 3]), r"none of them 0\. Received: \[0, 2, 3\]"),
        (np.full([1, 2, 3], -0.1), r"in \[0, 1\].*Received: -0\.1"),
        (np.full([1, 2, 3], 1.1), r"in \[0, 1\].*Received: 1\.1"),
        (np.full([1, 2, 3], np.nan), r"in \[0, 1\].*Received: nan"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        attention_image(weights, source=["a", "b", "c"], target=["x", "y"])


def test_no_pieces_are_refused():
    with pytest.raises(ValueError, match=r"none of them 0\. Received: \[1, 0, 3\]"):
        attention_image(np.zeros([1, 0, 3]), source=["a", "b", "c"], target=[])


def test_labels_of_ids(vocabularies):
    vocabulary = vocabularies.source
    [[_, word, _]] = vocabulary.encode(["seven"])

    ids = [PAD_ID, UNK_ID, BOS_ID, word, EOS_ID, vocabulary.piece_count]
    labels = piece_labels(vocabulary, ids)

    # The toy has 14 words and special pieces, and an embedding table of 16 rows.
    assert labels == ["<pad>", "<unk>", "<bos>", "_seven", "<eos>", "<id 14>"]


class ReversedVocabulary(Vocabulary):
    """Other labels than the source's: shows which vocabulary names which side."""

    def __init__(self, vocabulary):
        self.piece_count, self._processor = vocabulary.piece_count, self
        self._wrapped = vocabulary._processor

    def id_to_piece(self, piece):
        return self._wrapped.id_to_piece(piece)[::-1]


def test_sample_attention_draws_the_cross_attention_of_each_layer(vocabularies):
    config = TransformerConfig(
        source_vocabulary_size=16, target_vocabulary_size=16, shared_vocabulary=False,
        layers=3, d_model=32, heads=4, d_ff=48,
    )  # fmt: skip
    model = Transformer(config)
    generator = np.random.default_rng(3)
    for variable in model.variables:  # sharp attention: the layers' maps differ
        variable.assign(variable + 0.3 * generator.normal(size=variable.shape))
    source, target = vocabularies.source.encode(["one two three", "four five"])
    pair = VocabularyPair(vocabularies.source, ReversedVocabulary(vocabularies.source))

    images = sample_attention(model, pair, source_ids=source, target_ids=target)

    _, attention = model.decode_with_attention(
        tf.constant([source]), target=tf.constant([target[:-1]])
    )
    assert len(images) == 3
    for index, (image, weights) in enumerate(zip(images, attention.cross, strict=True)):
        expected = attention_image(
            weights[0].numpy(),
            source=["<bos>", "_one", "_two", "_three", "<eos>"],
            target=["ruof_", "evif_", "<eos>"],
            title=f"decoder_{index}: cross-attention of predicted target (rows) "
            "to source (columns)",
        )
        np.testing.assert_array_equal(image, expected)
    # The weights alone, without the titles.
    _, top = cell_corner(head=0, row=0, column=0, targets=3, sources=5)
    assert (images[0][top:] != images[1][top:]).any()
