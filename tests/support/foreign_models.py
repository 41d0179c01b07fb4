"""Small CTranslate2 models in the layouts of other programs: random weights, real pieces."""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from pathlib import Path

import ctranslate2
import numpy as np
import sentencepiece
from ctranslate2 import specs

from tt.pipelines.preprocess.ready_made import held_out_pairs

PAIRS = held_out_pairs()
ENGLISH, SPANISH = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]
WIDTH, POSITIONS, PIECES = 32, 600, 240
EOS = "</s>"
SPECIAL = re.compile(r"<s>|</s>|<pad>|>>.*<<|__..__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")


@dataclasses.dataclass(frozen=True)
class Layout:
    """A model's folder, and the inputs that a user of plain CTranslate2 would give the model."""

    folder: Path  # for `--model`
    weights: Path
    source: sentencepiece.SentencePieceProcessor
    target: sentencepiece.SentencePieceProcessor
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")  # codes that tt needs
    counted: int | None = None  # tokens of the prefix in the output; None means all

    def tokens(self, text):
        """Return the tokens of a source."""
        return [*self.before, *self.source.encode(text, out_type=str), *self.behind]

    def text(self, tokens):
        """Return the text of a translation without special tokens, as Hugging Face does."""
        plain = [token for token in tokens if not SPECIAL.fullmatch(token)]
        return self.target.decode(plain).replace("\u2581", " ").strip()

    def bare(self, texts, **options):
        """Translate with plain CTranslate2; return tokens without the prefix, texts and scores."""
        translator = ctranslate2.Translator(str(self.weights), intra_threads=1)
        defaults = {"beam_size": 1, "length_penalty": 0, "min_decoding_length": 0}
        results = translator.translate_batch(
            [self.tokens(text) for text in texts],
            target_prefix=[list(self.prefix)] * len(texts) if self.prefix else None,
            return_scores=True,
            max_input_length=0,
            **{**defaults, **options},
        )
        found = []
        for result in results:
            tokens = result.hypotheses[0]
            counted = len(self.prefix) if self.counted is None else self.counted
            assert tokens[:counted] == list(self.prefix[:counted])
            tokens = tokens[counted:]
            found.append((tokens, self.text(tokens), result.scores[0]))
        return found


def train_pieces(path, texts, *, size=PIECES, **options):
    """Train a SentencePiece model with SentencePiece's default special ids."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=file,
            vocab_size=size,
            num_threads=1,
            minloglevel=2,
            **options,
        )
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def pieces_of(processor):
    """Return the pieces, except <unk>, <s> and </s>."""
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def write_weights(folder, source, target, *, end_bias=5.0, seed=0, positions=POSITIONS, **config):
    """Write a random model; with a higher `end_bias`, translations end sooner."""
    generator = np.random.default_rng(seed)

    def table(*shape, scale=0.5):
        return generator.normal(scale=scale, size=shape).astype(np.float32)

    spec = specs.TransformerSpec.from_config(1, 2)
    for side, tokens in ((spec.encoder, source), (spec.decoder, target)):
        embeddings = side.embeddings[0] if side is spec.encoder else side.embeddings
        embeddings.weight, embeddings.multiply_by_sqrt_depth = table(len(tokens), WIDTH), True
        fill_norm(side.layer_norm)
        side.position_encodings.encodings = table(positions, WIDTH, scale=1.0)
        for layer in side.layer:
            attentions = [(layer.self_attention, (3, 1))]
            if side is spec.decoder:
                attentions.append((layer.attention, (1, 2, 1)))
            for attention, widths in attentions:
                for linear, width in zip(attention.linear, widths, strict=True):
                    fill(linear, table(width * WIDTH, WIDTH), table(width * WIDTH))
                fill_norm(attention.layer_norm)
            fill(layer.ffn.linear_0, table(2 * WIDTH, WIDTH), table(2 * WIDTH))
            fill(layer.ffn.linear_1, table(WIDTH, 2 * WIDTH), table(WIDTH))
            fill_norm(layer.ffn.layer_norm)
    spec.decoder.start_from_zero_embedding = False
    bias = np.zeros([len(target)], np.float32)
    bias[target.index(EOS)] = end_bias
    fill(spec.decoder.projection, table(len(target), WIDTH), bias)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    for name, value in config.items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def fill(linear, weight, bias):
    linear.weight, linear.bias = weight, bias


def fill_norm(norm):
    norm.gamma, norm.beta = np.ones([WIDTH], np.float32), np.zeros([WIDTH], np.float32)


HUGGING_FACE = {"decoder_start_token": EOS}  # CTranslate2 then adds no EOS to a source


def opus(folder, *, languages=(), **options):
    """OPUS-MT from Hugging Face: two SentencePiece models, and a shuffled vocabulary of both."""
    source = train_pieces(folder / "source.spm", ENGLISH)
    target = train_pieces(folder / "target.spm", SPANISH)
    tokens = sorted({*pieces_of(source), *pieces_of(target)})
    np.random.default_rng(3).shuffle(tokens)
    tokens = [EOS, "<unk>", *tokens, *(f">>{code}<<" for code in languages)]
    write_weights(folder, tokens, tokens, **HUGGING_FACE, **options)
    before = (f">>{languages[1]}<<",) if languages else ()
    return Layout(
        folder, folder, source, target, before, (EOS,), (), ("", languages[1] if languages else "")
    )


def marian(folder):
    """Marian with CTranslate2's own converter: two vocabularies; CTranslate2 adds EOS."""
    source = train_pieces(folder / "source.spm", ENGLISH)
    target = train_pieces(folder / "target.spm", SPANISH, size=200)
    sides = [[EOS, "<unk>", *pieces_of(each)] for each in (source, target)]
    config = {"decoder_start_token": EOS, "add_source_eos": True}
    write_weights(folder, *sides, **config)
    return Layout(folder, folder, source, target)


def nllb(folder, *, codes=("eng_Latn", "spa_Latn", "fra_Latn", "zho_Hans", "zho_Hant")):
    """NLLB from Hugging Face: a language code before each source and each translation."""
    both = train_pieces(folder / "sentencepiece.bpe.model", [*ENGLISH, *SPANISH], model_type="bpe")
    tokens = ["<s>", "<pad>", EOS, "<unk>", *pieces_of(both), *codes]
    write_weights(folder, tokens, tokens, seed=1, **HUGGING_FACE)
    return Layout(folder, folder, both, both, codes[:1], (EOS,), codes[1:2], ("en", "es"))


def m2m(folder):
    """M2M-100."""
    made = nllb(folder, codes=("__en__", "__es__", "__fr__"))
    return dataclasses.replace(made, languages=("en", "es"))


def mbart25(folder, *, codes=("en_XX", "es_XX", "fr_XX")):
    """mBART-25 from Hugging Face: translations start with their language, without a start token."""
    both = train_pieces(folder / "sentencepiece.bpe.model", [*ENGLISH, *SPANISH], model_type="bpe")
    tokens = ["<s>", "<pad>", EOS, "<unk>", *pieces_of(both), *codes]
    write_weights(folder, tokens, tokens, seed=1, end_bias=7.0, decoder_start_token=None)
    behind = (EOS, codes[0])
    return Layout(folder, folder, both, both, (), behind, codes[1:2], ("en", "es"), counted=0)


def fairseq(folder):
    """A fairseq model: a shared text vocabulary of pieces; CTranslate2 adds EOS."""
    both = train_pieces(folder / "sentencepiece.bpe.model", [*ENGLISH, *SPANISH])
    tokens = ["<s>", "<pad>", EOS, "<unk>", *pieces_of(both)]
    config = {"decoder_start_token": EOS, "add_source_eos": True}
    write_weights(folder, tokens, tokens, seed=2, **config)
    names = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.txt").write_text("".join(f"{name}\n" for name in names))
    (folder / "shared_vocabulary.json").unlink()
    return Layout(folder, folder, both, both)


def argos(folder, *, prefix="__es__"):
    """An unpacked package of Argos Translate, with OpenNMT's special tokens."""
    both = train_pieces(folder / "sentencepiece.model", [*ENGLISH, *SPANISH])
    tokens = ["<unk>", "<s>", EOS, *pieces_of(both), *([prefix] if prefix else [])]
    write_weights(folder / "model", tokens, tokens, seed=5)
    metadata = {"from_code": "en", "to_code": "es", "target_prefix": prefix, "type": "translate"}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return Layout(folder, folder / "model", both, both, prefix=(prefix,) if prefix else ())


def pack_argos(folder, package):
    """Zip an unpacked package as Argos Translate does, with an additional file."""
    with zipfile.ZipFile(package, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, Path("translate-en_es-1_0") / path.relative_to(folder))
        file.writestr("translate-en_es-1_0/stanza/en/large.pt", b"0" * 100)
    return package


LAYOUTS = {
    "opus-mt-en-es": opus,
    "opus-mt-en-roa": lambda folder: opus(folder, languages=("fra", "spa", "por")),
    "marian": marian,
    "nllb": nllb,
    "m2m": m2m,
    "mbart-25": mbart25,
    "fairseq": fairseq,
    "argos": argos,
}
