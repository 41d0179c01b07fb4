"""Heat maps of attention: the color of each cell, the labels, and the choice of the weights."""

import itertools

import numpy as np
import pytest
from toy import write_vocabulary

from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tt.model.transformer.attention_figures import (
    LEGEND,
    MAX_TOKENS,
    AttentionMap,
    attention_figure,
    render,
    token_labels,
)

WHITE, DARKEST = [247, 251, 255], [8, 48, 107]  # the ends of Matplotlib's "Blues"


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


def test_labels_of_ids(vocabularies):
    vocabulary = vocabularies.source
    [[_, word, _]] = vocabulary.encode(["seven"])

    ids = [PAD_ID, UNK_ID, BOS_ID, word, EOS_ID, vocabulary.piece_count]
    labels = token_labels(vocabulary, ids)

    # The toy vocabulary has 14 words and special pieces, and an embedding table with 16 rows.
    assert labels == ["<pad>", "<unk>", "<bos>", "_seven", "<eos>", "<id 14>"]
