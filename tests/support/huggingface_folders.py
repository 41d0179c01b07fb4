"""Small random models in the layout of Hugging Face, written without Transformers and PyTorch.

`tests/engines/huggingface` compares models that Transformers writes itself.
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import sentencepiece
from marian_models import TEXTS, train_pieces
from safetensors.numpy import save_file

WIDTH, INNER, HEADS, LAYERS, POSITIONS = 16, 24, 2, 2, 512
CARD = "---\nlanguage: [en, es]\nlicense: apache-2.0\n---\n# A model\n"
LANGUAGES = ("en", "es", "de")


def arrays_of(*, rows: int, pre_norm: bool = False, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random arrays by the names of Transformers; the embeddings are shared and tied."""
    generator = np.random.default_rng(seed)

    def draw(*shape):
        return generator.normal(0, 0.3, shape).astype(np.float32)

    found = {"model.shared.weight": draw(rows, WIDTH)}
    for side in ("encoder", "decoder"):
        for number in range(LAYERS):
            layer = f"model.{side}.layers.{number}"
            for kind in ("self_attn", *(["encoder_attn"] if side == "decoder" else [])):
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    found[f"{layer}.{kind}.{part}.weight"] = draw(WIDTH, WIDTH)
                    found[f"{layer}.{kind}.{part}.bias"] = draw(WIDTH)
                found[f"{layer}.{kind}_layer_norm.weight"] = 1 + draw(WIDTH)
                found[f"{layer}.{kind}_layer_norm.bias"] = draw(WIDTH)
            found[f"{layer}.fc1.weight"] = draw(INNER, WIDTH)
            found[f"{layer}.fc1.bias"] = draw(INNER)
            found[f"{layer}.fc2.weight"] = draw(WIDTH, INNER)
            found[f"{layer}.fc2.bias"] = draw(WIDTH)
            found[f"{layer}.final_layer_norm.weight"] = 1 + draw(WIDTH)
            found[f"{layer}.final_layer_norm.bias"] = draw(WIDTH)
        if pre_norm:
            found[f"model.{side}.layer_norm.weight"] = 1 + draw(WIDTH)
            found[f"model.{side}.layer_norm.bias"] = draw(WIDTH)
    return found


def _config(architecture, **fields):
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", INNER))
    }
    return {
        "architectures": [architecture], "d_model": WIDTH, "scale_embedding": True,
        "max_position_embeddings": POSITIONS, **sides, **fields,
    }  # fmt: skip


def write_marian(folder: Path, *, languages=(), weights="safetensors", seed=0, **fields) -> Path:
    """Write a MarianMT model.

    Args:
      folder: The folder to write.
      languages: Codes of language tokens such as >>deu<<.
      weights: "safetensors", "zip", "older" or "none".
      seed: Determines the weights.
      **fields: Fields of config.json to replace.
    """
    folder.mkdir(parents=True)
    pieces = train_pieces(folder / "source.spm", TEXTS["source"] + TEXTS["target"])
    (folder / "target.spm").write_bytes(pieces.read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    names = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    names += [f">>{code}<<" for code in languages]
    names.append("<pad>")
    write_json(folder / "vocab.json", {name: i for i, name in enumerate(names)})
    pad = len(names) - 1
    arrays = arrays_of(rows=len(names), seed=seed)
    arrays["model.shared.weight"][pad] = 0  # the embedding of the first decoder token
    bias = np.random.default_rng(seed + 1).normal(0, 1, (1, len(names))).astype(np.float32)
    arrays["final_logits_bias"] = bias
    config = _config(
        "MarianMTModel", model_type="marian", activation_function="swish", vocab_size=len(names),
        decoder_start_token_id=pad, pad_token_id=pad, eos_token_id=0, bad_words_ids=[[pad]],
    )  # fmt: skip
    _finish(folder, {**config, **fields}, arrays, weights=weights, tokenizer="MarianTokenizer")
    return folder


def write_m2m100(folder: Path, *, is_nllb=False, weights="safetensors", **fields) -> Path:
    """Write an M2M-100 model, or a model with the tokens of NLLB."""
    folder.mkdir(parents=True)
    pieces = folder / "sentencepiece.bpe.model"
    with pieces.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS["source"] + TEXTS["target"]), model_writer=file,
            vocab_size=200, num_threads=1, minloglevel=2,
        )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    own = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    names = ["<s>", "<pad>", "</s>", "<unk>", *own]
    if is_nllb:
        languages = ["eng_Latn", "spa_Latn", "deu_Latn"]
    else:
        languages = [f"__{code}__" for code in LANGUAGES]
        write_json(folder / "vocab.json", {name: i for i, name in enumerate(names)})
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": languages})
    rows = len(names) + len(languages) + 2  # two rows without a token
    config = _config(
        "M2M100ForConditionalGeneration", model_type="m2m_100", activation_function="relu",
        max_position_embeddings=1024, vocab_size=rows, decoder_start_token_id=2, pad_token_id=1,
        eos_token_id=2, bos_token_id=0,
    )  # fmt: skip
    tokenizer = "NllbTokenizer" if is_nllb else "M2M100Tokenizer"
    arrays = arrays_of(rows=rows, pre_norm=True)
    _finish(folder, {**config, **fields}, arrays, weights=weights, tokenizer=tokenizer)
    return folder


def _finish(folder, config, arrays, *, weights, tokenizer):
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": tokenizer})
    (folder / "README.md").write_text(CARD, "utf-8")
    write_weights(folder, arrays, kind=weights)


def write_weights(folder: Path, arrays, *, kind: str) -> None:
    """Write weights in one of the formats; "sharded" writes two files and an index."""
    if kind == "safetensors":
        save_file(arrays, folder / "model.safetensors")
    elif kind == "sharded":
        names = sorted(arrays)
        files = {f"model-{n:05d}-of-00002.safetensors": names[n - 1 :: 2] for n in (1, 2)}
        for file, some in files.items():
            save_file({name: arrays[name] for name in some}, folder / file)
        places = {name: file for file, some in files.items() for name in some}
        write_json(folder / "model.safetensors.index.json", {"weight_map": places})
    elif kind != "none":
        content = zip_file(arrays) if kind == "zip" else older_file(arrays)
        (folder / "pytorch_model.bin").write_bytes(content)


def write_json(path: Path, content) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


class _Pickler(pickle.Pickler):
    """Writes tensors like PyTorch: a call of a function with a reference to a storage."""

    def __init__(self, file, torch, *, is_older):
        super().__init__(file, protocol=2)
        self._torch, self._is_older = torch, is_older
        self.storages: dict[str, np.ndarray] = {}

    def persistent_id(self, value):
        if not isinstance(value, _Storage):
            return None
        self.storages[value.key] = value.values
        reference = (
            "storage",
            getattr(self._torch, value.kind),
            value.key,
            "cpu",
            value.values.size,
        )
        return (*reference, None) if self._is_older else reference

    def reducer_override(self, value):
        if not isinstance(value, np.ndarray):
            return NotImplemented
        kinds = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage"}
        storage = _Storage(str(id(value)), value.ravel("K"), kinds[value.dtype.name])
        strides = tuple(stride // value.itemsize for stride in value.strides)
        hooks = collections.OrderedDict()
        arguments = (storage, 0, value.shape, strides, False, hooks)
        return self._torch._utils._rebuild_tensor_v2, arguments


class _Storage:
    def __init__(self, key, values, kind):
        self.key, self.values, self.kind = key, values, kind


def _pickled(arrays, *, is_older):
    """Return the pickle of arrays, and their storages."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch._utils = utils
    for kind in ("FloatStorage", "HalfStorage", "LongStorage"):
        setattr(torch, kind, type(kind, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*arguments):
        raise AssertionError("the product must not call PyTorch")

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    names = ("torch", "torch._utils")
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(zip(names, (torch, utils), strict=True))
    try:
        file = io.BytesIO()
        pickler = _Pickler(file, torch, is_older=is_older)
        pickler.dump(collections.OrderedDict(arrays))
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return file.getvalue(), pickler.storages


def zip_file(arrays) -> bytes:
    """Return a pytorch_model.bin as PyTorch has written it since version 1.6."""
    pickled, storages = _pickled(arrays, is_older=False)
    return zipped(pickled, {key: values.tobytes() for key, values in storages.items()})


def zipped(pickled: bytes, storages=(), *, compression=zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, content in dict(storages).items():
            archive.writestr(f"archive/data/{key}", content)
    return file.getvalue()


def older_file(arrays) -> bytes:
    """Return a pytorch_model.bin as PyTorch wrote it before version 1.6."""
    pickled, storages = _pickled(arrays, is_older=True)
    sizes = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"long": 4}}
    parts = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, sizes)]
    parts += [pickled, pickle.dumps(list(storages), 2)]
    for values in storages.values():
        parts += [struct.pack("<q", values.size), values.tobytes()]
    return b"".join(parts)
