"""Small models with random weights."""

from __future__ import annotations

import functools

import numpy as np
import sentencepiece
import tensorflow as tf

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Input
from tt.model.formats.weights import save_model
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
    load_vocabularies,
    vocabulary_json,
)
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.transformer import Transformer

SIZE = 40


def small_config(**fields):
    defaults = {
        "source_vocabulary_size": SIZE, "target_vocabulary_size": SIZE, "shared_vocabulary": True,
        "layers": 2, "d_model": 32, "heads": 4, "d_ff": 48, "dropout": 0.3,
    }  # fmt: skip
    return TransformerConfig(**{**defaults, **fields})


def make_model(seed=0, **fields):
    """Return a model whose variables are all random, including biases and norms."""
    model = Transformer(small_config(**fields))
    generator = np.random.default_rng(seed)
    for variable in model.variables:
        around = 1.0 if variable.name == "scale" else 0.0
        variable.assign(around + 0.2 * generator.normal(size=variable.shape))
    return model


def full_logits(model, source, target):
    """Return the logits of one sentence by a full pass: [length of the target, vocabulary]."""
    return _full_pass(model)(tf.constant([source]), tf.constant([target]))[0].numpy()


@functools.lru_cache(4)
def _full_pass(model):
    # Eager execution would take 20 times as long for the hundreds of sentences of a test.
    function = tf.function(lambda source, target: model.logits(model(source, target=target)))
    return function.get_concrete_function(*[tf.TensorSpec([None, None], tf.int32)] * 2)


def random_ids(lengths, seed=1, size=SIZE):
    generator = np.random.default_rng(seed)
    ids = np.full([len(lengths), max(lengths)], PAD_ID, np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = generator.integers(4, size, length)
        row[0], row[length - 1] = BOS_ID, EOS_ID
    return ids


ROWS = 300


def write_words(path, count, **options):
    """Train a vocabulary of `count` words and the four special pieces."""
    words = [f"{path.stem}{i}" for i in range(count)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)] * 3), model_prefix=str(path.with_suffix("")),
        model_type="word", vocab_size=count + 4, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
        minloglevel=2, **options,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)


def write_model(folder, *, shared_vocabulary=True, end=3.0, **fields):
    """Export a random model; with 33 and 41 pieces, some ids of the padded sizes have no piece.

    Wide kernels make the translations depend on the sources. The logits of EOS vary `end` times as
    much as other logits, so that some translations end and others reach the limit.
    """
    vocabulary_folder = folder / "vocabularies"
    vocabulary_folder.mkdir(parents=True)
    if shared_vocabulary:
        write_words(vocabulary_folder / SHARED_MODEL, 37)
    else:
        write_words(vocabulary_folder / SOURCE_MODEL, 29)
        write_words(vocabulary_folder / TARGET_MODEL, 37, eos_piece="<end>")
    text = vocabulary_json(shared=shared_vocabulary, normalization=TextNormalization())
    (vocabulary_folder / VOCABULARY_FILE).write_text(text)
    vocabularies = load_vocabularies(vocabulary_folder)
    model = make_model(
        source_vocabulary_size=vocabularies.source.size,
        target_vocabulary_size=vocabularies.target.size,
        shared_vocabulary=shared_vocabulary, **fields,
    )  # fmt: skip
    for variable in model.variables:
        if variable.name == "kernel":
            variable.assign(3 * variable)
    table = model.output_embedding.table.numpy()
    table[EOS_ID] *= end
    model.output_embedding.table.assign(table)
    save_model(
        model, folder / "model", vocabulary_folder=vocabulary_folder, vocabularies=vocabularies
    )
    return folder / "model"


def model_texts(count, *, seed=0):
    """Return different texts with words from the vocabulary of `write_model`."""
    generator = np.random.default_rng(seed)
    stem = SHARED_MODEL.partition(".")[0]
    texts = {}
    while len(texts) < count:
        numbers = generator.integers(0, 37, generator.integers(1, 9))
        texts[" ".join(f"{stem}{number}" for number in numbers)] = None
    return list(texts)


def random_rows(translator, count=ROWS):
    """Return ids of sources with 1 to 10 pieces, some of them UNK, between BOS and EOS."""
    generator = np.random.default_rng(7)
    top = getattr(translator, "tokens", translator).vocabularies.source.piece_count
    return [
        [BOS_ID, *(UNK_ID if i == EOS_ID else int(i) for i in inner), EOS_ID]
        for inner in (
            generator.integers(EOS_ID, top, generator.integers(1, 11)) for _ in range(count)
        )
    ]


def with_weight(model_folder, output, value, *, name="inner/kernel"):
    """Write a model whose first matrix with a name has one value in its first row."""
    translator = TensorFlowTranslator.load(model_folder)
    kernel = next(v for v in translator.model.variables if v.path.endswith(name))
    weights = kernel.numpy()
    weights[0] = value
    kernel.assign(weights)
    vocabularies = translator.vocabularies
    save_model(translator.model, output, vocabulary_folder=model_folder, vocabularies=vocabularies)
    return output


def inputs_of(translator, rows):
    """Return an engine's inputs for rows of ids with BOS and EOS."""
    convert = translator.tokens.convert if hasattr(translator, "tokens") else list
    return [Input("", len(row) - 2, encoded=convert(row)) for row in rows]


def translated(translator, texts):
    """Return the translations of texts."""
    return translator.translate(translator.prepare(texts))[0]
