"""Heat maps of attention: the color of each cell, the labels, and the choice of the weights."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from matplotlib import font_manager
from toy import write_vocabulary

from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair
from tt.model.transformer import attention_figures
from tt.model.transformer.attention_figures import (
    LEGEND,
    MAX_TOKENS,
    AttentionMap,
    attention_figure,
    render,
    sample_attention,
    token_labels,
)
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.transformer import Transformer

WHITE, DARKEST = [247, 251, 255], [8, 48, 107]  # the ends of Matplotlib's "Blues"


@pytest.fixture
def only_one_font(monkeypatch):
    """Hide all fonts except the one that Matplotlib includes, which has no Chinese characters."""
    fonts = {"DejaVu Sans": font_manager.findfont("DejaVu Sans")}
    monkeypatch.setattr(attention_figures, "_font_paths", lambda: fonts)


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def letters(count):
    return [chr(ord("a") + i % 26) for i in range(count)]


def uniform(heads, targets, sources):
    return np.full([heads, targets, sources], 1 / sources, np.float32)


def draw(weights, *, source=None, target=None, title=""):
    heads, targets, sources = weights.shape
    rows, columns = target or letters(targets), source or letters(sources)
    found = AttentionMap("cross", weights[None], rows, columns)
    return attention_figure(found, layers=[0], heads=range(heads), title=title)


def rows_of(panel):
    return [label.get_text() for label in panel.get_yticklabels()]


def columns_of(panel):
    return [label.get_text() for label in panel.get_xticklabels()]


def panels_of(figure):
    """Return the axes of the maps, without the scale below them."""
    return figure.axes[:-1]


def title_of(figure):
    title, legend = figure.texts
    assert legend.get_text() == LEGEND
    return title.get_text()


def test_each_cell_has_the_color_of_its_weight():
    # With five heads, the last one is in the second row of panels. Each head marks another cell.
    places = {0: (0, 0), 1: (1, 3), 2: (2, 0), 3: (0, 3), 4: (2, 2)}
    weights = np.zeros([5, 3, 4])
    for head, (row, column) in places.items():
        weights[head, row, column] = 1

    figure = draw(weights)
    image = render(figure)

    assert [panel.get_title() for panel in panels_of(figure)] == [
        f"layer 0, head {head}" for head in range(5)
    ]
    for head, row, column in np.ndindex(weights.shape):
        x, y = figure.axes[head].transData.transform((column, row))  # y goes up
        seen = image[len(image) - round(y) - 4 : len(image) - round(y) + 4, round(x) - 4 :][:, :8]
        expected = DARKEST if places[head] == (row, column) else WHITE
        assert (seen == expected).all(), (head, row, column)


def test_colors_are_a_linear_scale_from_0_to_1():
    [panel] = panels_of(draw(np.array([[[0.5, 0.25, 0.25]]])))

    [drawn] = panel.images
    np.testing.assert_array_equal(drawn.get_array(), [[0.5, 0.25, 0.25]])
    assert (drawn.norm.vmin, drawn.norm.vmax) == (0, 1)  # not the least and greatest weight
    red, *_ = drawn.cmap(drawn.norm(np.array([0.0, 0.25, 0.5, 1.0]))).T
    assert (np.diff(red) < 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_picture_size_fits_cells_and_labels(dtype):
    figure = draw(uniform(8, 20, 20).astype(dtype))
    image = render(figure)

    # There are 4 x 2 panels with 20 cells of 16 pixels per side, and gaps of 30 pixels. Labels of
    # one letter take little space.
    height, width, _ = image.shape
    assert 0 < width - 4 * (320 + 30) < 45
    assert 0 < height - 2 * (320 + 30) - 50 < 100
    assert image.dtype == np.uint8
    label = draw(uniform(8, 20, 20), source=[*letters(19), "m" * 10])
    more = render(label).shape[0] - height
    assert more / 2 > 40, "there is space for labels below each row of panels"


def test_picture_grows_with_tokens_and_heads():
    height, width, _ = render(draw(uniform(4, 5, 6))).shape

    assert render(draw(uniform(4, 6, 6))).shape[:2] == (height + 16, width)
    assert render(draw(uniform(4, 5, 7))).shape[:2] == (height, width + 4 * 16)
    assert render(draw(uniform(5, 5, 6))).shape[0] > height
    assert render(draw(uniform(3, 5, 6))).shape[1] < width


def test_each_row_of_panels_has_labels():
    figure = draw(uniform(6, 2, 3), source=["a", "b", "c"], target=["x", "y"])

    panels = panels_of(figure)
    assert [rows_of(panel) for panel in panels] == [["x", "y"], [], [], [], ["x", "y"], []]
    assert [columns_of(panel) for panel in panels] == 6 * [["a", "b", "c"]]


def test_scale_shows_the_colors_of_the_weights():
    figure = draw(uniform(1, 2, 3))
    [panel], scale = panels_of(figure), figure.axes[-1]

    [drawn], [colours] = panel.images, scale.images
    assert colours.cmap.name == drawn.cmap.name
    assert (colours.norm.vmin, colours.norm.vmax) == (drawn.norm.vmin, drawn.norm.vmax)
    assert list(colours.get_extent()[:2]) == [0, 1]
    assert columns_of(scale) == ["0", "0.5", "weight 1"]


def test_labels_of_only_punctuation_are_quoted():
    figure = draw(uniform(1, 2, 3), source=["_a", ".", "_"], target=["b.", "<eos>"])

    assert columns_of(figure.axes[0]) == ["_a", '"."', '"_"']
    assert rows_of(figure.axes[0]) == ["b.", "<eos>"]


def test_all_texts_are_inside_the_picture_without_overlap():
    labels = ["W" * 60, "_" + "m" * 60]
    figure = draw(uniform(5, 2, 2), source=labels, target=labels, title="long title " * 9)
    image = render(figure)

    height, width, _ = image.shape
    texts = [*figure.texts, *(t for a in figure.axes for t in (a.title, *a.get_xticklabels()))]
    texts += [label for panel in figure.axes for label in panel.get_yticklabels()]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other), "texts do not overlap"
    for text in texts:
        box = text.get_window_extent()
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    assert rows_of(figure.axes[0])[0] == "W" * 11 + "…"


def test_labels_are_not_parsed_as_formulas():
    figure = draw(uniform(1, 1, 2), source=["$x$", "$"], title="$y_1$ a_b")

    labels = [figure.texts[0], *figure.axes[0].get_xticklabels()]
    assert labels[0].get_text().startswith("$y_1$ a_b\n")
    assert [label.get_text() for label in labels[1:]] == ["$x$", '"$"']
    assert not any(label.get_parse_math() for label in labels)


def test_long_sentences_are_cut_with_a_note_in_the_title():
    weights = np.random.default_rng(5).random([2, 3, 57])

    figure = draw(weights, title="map")
    other = draw(np.moveaxis(weights, 1, 2), title="map")

    for each in (figure, other):
        assert title_of(each) == (
            "map\ncross attention of predicted target (rows) to source (columns), the first "
            f"{MAX_TOKENS} tokens of each side"
        )
    for head in range(2):
        kept = weights[head, :, :MAX_TOKENS]
        np.testing.assert_array_equal(figure.axes[head].images[0].get_array(), kept)
        np.testing.assert_array_equal(other.axes[head].images[0].get_array(), kept.T)
    assert columns_of(figure.axes[0]) == letters(MAX_TOKENS)


def test_each_layer_has_a_row_of_panels():
    weights = np.random.default_rng(5).random([3, 8, 2, 2])
    found = AttentionMap("encoder", weights, ["a", "b"], ["a", "b"])

    figure = attention_figure(found, layers=[2, 0], heads=[5, 1], title="map")

    names = [panel.get_title() for panel in panels_of(figure)]
    assert names == [f"layer {layer}, head {head}" for layer in (2, 0) for head in (5, 1)]
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), weights[2, 1])
    assert [bool(rows_of(panel)) for panel in panels_of(figure)] == [True, False, True, False]


def test_labels_with_missing_characters_are_numbered(only_one_font):
    figure = draw(uniform(1, 2, 3), source=["a", "中", "ü"], target=["_жизнь", "a\U000e1234"])

    assert columns_of(figure.axes[0]) == ["a", "#1", "ü"]
    assert rows_of(figure.axes[0]) == ["_жизнь", "#1"]


def test_matplotlib_includes_a_font():
    assert "DejaVu Sans" in attention_figures._font_paths()


def test_labels_of_ids(vocabularies):
    vocabulary = vocabularies.source
    [[_, word, _]] = vocabulary.encode(["seven"])

    ids = [PAD_ID, UNK_ID, BOS_ID, word, EOS_ID, vocabulary.piece_count]
    labels = token_labels(vocabulary, ids)

    # The toy vocabulary has 14 words and special pieces, and an embedding table with 16 rows.
    assert labels == ["<pad>", "<unk>", "<bos>", "_seven", "<eos>", "<id 14>"]


class ReversedVocabulary(Vocabulary):
    """A vocabulary with reversed labels, to show which vocabulary labels which side."""

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
    for variable in model.variables:  # sharpens the attention, so that the layers differ
        variable.assign(variable + 0.3 * generator.normal(size=variable.shape))
    source, target = vocabularies.source.encode(["one two three", "four five"])
    pair = VocabularyPair(vocabularies.source, ReversedVocabulary(vocabularies.source))

    images = sample_attention(model, pair, source_ids=source, target_ids=target)

    _, attention = model.decode_with_attention(
        tf.constant([source]), target=tf.constant([target[:-1]])
    )
    assert len(images) == 3
    source_labels = ["<bos>", "_one", "_two", "_three", "<eos>"]
    weights = np.stack([layer[0].numpy() for layer in attention.cross])
    cross = AttentionMap("cross", weights, ["ruof_", "evif_", "<eos>"], source_labels)
    for index, image in enumerate(images):
        expected = attention_figure(cross, layers=[index], heads=range(4), title=f"decoder_{index}")
        np.testing.assert_array_equal(image, render(expected))
    # The pictures differ in their weights, not only in their titles.
    assert (images[0][50:] != images[1][50:]).any()
