"""Create and run models with Transformers and PyTorch, inside an environment that has both.

The program is a server: it reads one JSON object {"call": NAME, "arguments": {...}} per line, calls
the function of that name, and prints {"result": ...} or {"error": ...} as one line.
`huggingface_models.Transformers` runs it. `create` also works with Transformers 4.25, which wrote
the files of older models.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import shutil
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch
import transformers

BATCH = 50
_IS_OLD = transformers.__version__.startswith("4.")
# Forms of weights.
SAFETENSORS, SHARDS, ZIP, LEGACY = "safetensors", "shards", "zip", "legacy"


def versions():
    """Return the versions of the libraries."""
    return {"transformers": transformers.__version__, "torch": torch.__version__}


def create(
    folder,
    *,
    kind,
    tokenizer,
    config,
    generation,
    examples,
    steps,
    batch=64,
    peak=0.003,
    warmup=100,
    form=SAFETENSORS,
    half=False,
):
    """Train a model and write it; return the seconds and the last loss.

    Args:
      folder: The output folder.
      kind: The architecture and tokenizer, a key of `_KINDS`.
      tokenizer: Arguments of the tokenizer.
      config: Arguments of the configuration.
      generation: Arguments of the generation configuration. Transformers 4.25 writes them into
        config.json.
      examples: Lists of a source, a target, and the codes of their languages for M2M-100.
      steps: The number of updates.
      batch: The number of examples per update.
      peak: The highest learning rate.
      warmup: The number of updates until the learning rate has its peak.
      form: The form of the weights.
      half: Store the weights as float16.
    """
    begin = time.monotonic()
    torch.manual_seed(7)
    model_class, config_class, make_tokenizer = _KINDS[kind]
    made = make_tokenizer(**tokenizer)
    model = model_class(config_class(**{**config, **(generation if _IS_OLD else {})}))
    _disturb(model)
    loss = _train(model, _encode(made, examples), steps, batch=batch, peak=peak, warmup=warmup)
    made.save_pretrained(folder)
    if kind == "nllb":  # as in the published folders
        shutil.copytree(tokenizer["folder"], folder, dirs_exist_ok=True)
    if not _IS_OLD:
        model.generation_config = transformers.GenerationConfig(**generation)
    _save(model, Path(folder), form=form, half=half)
    return {"seconds": time.monotonic() - begin, "loss": loss}


def _load_nllb_tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


_MARIAN = (transformers.MarianMTModel, transformers.MarianConfig, transformers.MarianTokenizer)
_M2M = (transformers.M2M100ForConditionalGeneration, transformers.M2M100Config)
_KINDS = {
    "marian": _MARIAN,
    "m2m100": (*_M2M, transformers.M2M100Tokenizer),
    "nllb": (*_M2M, _load_nllb_tokenizer),
}


def write_nllb_tokenizer(folder, *, model):
    """Write the tokenizer of a SentencePiece model as the published NLLB folders have it.

    Only Transformers 4 gives the languages the ids of the published models.
    """
    transformers.NllbTokenizerFast(model).save_pretrained(folder)


@torch.no_grad()
def _disturb(model):
    """Change all arrays that are initialized with one value, so that no array may be left out."""
    for tensor in model.parameters():
        if tensor.dim() == 1:
            tensor += 0.1 * torch.randn_like(tensor)
    if model.config.model_type == "marian":
        model.final_logits_bias.copy_(0.5 * torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[:, model.config.pad_token_id] = 0.0  # as in published models


def _encode(tokenizer, examples):
    """Return pairs of ids."""
    pairs = []
    languages = sorted({tuple(example[2:]) for example in examples})
    for source, target in languages:
        if target:
            tokenizer.src_lang, tokenizer.tgt_lang = source, target
        chosen = [example for example in examples if tuple(example[2:]) == (source, target)]
        ids = tokenizer([example[0] for example in chosen])["input_ids"]
        labels = tokenizer(text_target=[example[1] for example in chosen])["input_ids"]
        pairs += zip(ids, labels, strict=True)
    return pairs


def _train(model, pairs, steps, *, batch, peak, warmup):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=peak, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)
    )
    generator = np.random.default_rng(7)
    pad, loss = model.config.pad_token_id, torch.nan
    for _ in range(steps):
        rows = [pairs[i] for i in generator.choice(len(pairs), batch, replace=False)]
        ids, labels = (_pad(side, pad) for side in zip(*rows, strict=True))
        start = torch.full([batch, 1], model.config.decoder_start_token_id)
        logits = model(
            input_ids=ids, attention_mask=(ids != pad).long(),
            decoder_input_ids=torch.cat([start, labels[:, :-1]], 1),
        ).logits  # fmt: skip
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=pad, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        _clear_pad(model)
    model.eval()
    return loss.item()


@torch.no_grad()
def _clear_pad(model):
    """Set the embeddings of <pad> to zero, as in published models."""
    if model.config.model_type == "marian":
        for side in (model.model.encoder, model.model.decoder):
            side.embed_tokens.weight[model.config.pad_token_id] = 0.0


def _save(model, folder, *, form, half=False):
    if half:
        model = copy.deepcopy(model).half()
    size = "300KB" if form == SHARDS else "1GB"
    if _IS_OLD:
        save = functools.partial(torch.save, _use_new_zipfile_serialization=form != LEGACY)
        model.save_pretrained(folder, save_function=save, max_shard_size=size)
        return
    model.save_pretrained(folder, max_shard_size=size)
    if form in (ZIP, LEGACY):
        (folder / "model.safetensors").unlink()
        output = folder / "pytorch_model.bin"
        state = model.state_dict()
        if half:  # positions in float16 would differ from the other forms
            state = {name: state[name] for name in state if "embed_positions" not in name}
        torch.save(state, output, _use_new_zipfile_serialization=form == ZIP)


def rewrite(folder, *, output, form, half=False):
    """Write a copy of a model with another form of weights."""
    names = shutil.ignore_patterns("*.safetensors*", "*.bin*")
    shutil.copytree(folder, output, ignore=names, dirs_exist_ok=True)
    _save(_load(folder)[0], Path(output), form=form, half=half)


def _pad(rows, pad):
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


@functools.lru_cache(maxsize=2)
def _load(folder):
    auto = transformers.AutoModelForSeq2SeqLM
    dtype = {"torch_dtype" if _IS_OLD else "dtype": torch.float32}
    model, report = auto.from_pretrained(folder, **dtype, output_loading_info=True)
    assert not report["missing_keys"], report
    # M2M-100 computes its positions, although old versions stored them.
    assert not [name for name in report["unexpected_keys"] if "embed_positions" not in name], report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return model.eval(), tokenizer


@torch.no_grad()
def generate(folder, *, texts, beam_size=1, source="", target="", options=None):
    """Translate texts with the model's own generation configuration.

    Args:
      folder: The model.
      texts: The sources. Language tokens of MarianMT, such as >>deu<<, are part of the texts.
      beam_size: The number of beams.
      source: The source language of an M2M-100 tokenizer.
      target: The target language of an M2M-100 tokenizer.
      options: More options of the search.

    Returns:
      For each text a dictionary:

      - source_ids: The ids of the source.
      - ids: The ids of the translation, without the start token and without padding.
      - text: The translation.
      - has_ended: Whether the translation ends with EOS.
      - score: The sum of the log-probabilities of the ids, without a forced first id. The
        probabilities are those among the ids that the configuration allows.
      - plain_score: The same sum, with the probabilities among all ids.
      - gaps: In a greedy search, the difference between the two highest logits at each step.
      - runners_up: In a greedy search, the second best id at each step.
    """
    model, tokenizer = _load(folder)
    forced = _set_languages(tokenizer, source, target)
    pad, found = model.config.pad_token_id, []
    for first in range(0, len(texts), BATCH):
        inputs = tokenizer(texts[first : first + BATCH], return_tensors="pt", padding=True)
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        made = model.generate(
            **inputs, **forced, **(options or {}), num_beams=beam_size, do_sample=False,
            return_dict_in_generate=True, output_scores=beam_size == 1,
        )  # fmt: skip
        sequences = made.sequences[:, 1:]
        # The configuration may stop a row at EOS, and pads it after EOS.
        rows = [_until_end(row, model) for row in sequences.tolist()]
        scores = _score(model, inputs, rows, is_forced=bool(forced))
        top = torch.stack(made.scores, 1).topk(2, -1) if beam_size == 1 else None
        for i, (row, (score, plain)) in enumerate(zip(rows, scores, strict=True)):
            each = {
                "source_ids": [id_ for id_ in inputs["input_ids"][i].tolist() if id_ != pad],
                "ids": row,
                "text": tokenizer.decode(row[bool(forced) :], skip_special_tokens=True),
                "has_ended": row[-1:] == [model.config.eos_token_id],
                "score": score,
                "plain_score": plain,
            }
            if top is not None:
                each["gaps"] = (
                    top.values[i, : len(row), 0] - top.values[i, : len(row), 1]
                ).tolist()
                each["runners_up"] = top.indices[i, : len(row), 1].tolist()
            found.append(each)
    return found


def _set_languages(tokenizer, source, target):
    if not target:
        return {}
    tokenizer.src_lang = source
    name = tokenizer.get_lang_token(target) if hasattr(tokenizer, "get_lang_token") else target
    id_ = tokenizer.convert_tokens_to_ids(name)
    assert id_ != tokenizer.unk_token_id, name
    return {"forced_bos_token_id": id_}


def _until_end(row, model):
    end = model.config.eos_token_id
    if end in row:
        return row[: row.index(end) + 1]
    return [id_ for id_ in row if id_ != model.config.pad_token_id]


def _score(model, inputs, rows, *, is_forced):
    """Return the log-probabilities of translations, computed in one pass."""
    pad = model.config.pad_token_id
    labels = _pad(rows, pad)
    start = torch.full([len(rows), 1], model.config.decoder_start_token_id)
    prefix = torch.cat([start, labels[:, :-1]], 1)
    logits = model(**inputs, decoder_input_ids=prefix).logits
    counted = (labels != pad).float()
    if is_forced:
        counted[:, 0] = 0.0
    allowed = logits.clone()
    for words in model.generation_config.bad_words_ids or []:
        assert len(words) == 1
        allowed[..., words[0]] = -torch.inf
    sums = []
    for each in (allowed, logits):
        log_p = each.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        sums.append(torch.where(counted > 0, log_p, 0.0).sum(1).tolist())
    return list(zip(*sums, strict=True))


@torch.no_grad()
def branches(folder, *, text, tie, source="", target=""):
    """Return the greedy translations that take the second best id at one step with a tie.

    Args:
      folder: The model.
      text: The source.
      tie: The largest difference between the logits of two ids that may change places.
      source: See `generate`.
      target: See `generate`.
    """
    model, tokenizer = _load(folder)
    [best] = generate(folder, texts=[text], source=source, target=target)
    inputs = tokenizer([text], return_tensors="pt")
    texts = []
    for step, gap in enumerate(best["gaps"]):
        if gap >= tie:
            continue
        prefix = [
            model.config.decoder_start_token_id,
            *best["ids"][:step],
            best["runners_up"][step],
        ]
        if prefix[-1] == model.config.eos_token_id:
            row = prefix
        else:
            [row] = model.generate(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
                decoder_input_ids=torch.tensor([prefix]), num_beams=1, do_sample=False,
            ).tolist()  # fmt: skip
        row = _until_end(row[1 + bool(target) :], model)
        texts.append(tokenizer.decode(row, skip_special_tokens=True))
    return texts


_CALLS = {
    each.__name__: each
    for each in (versions, write_nllb_tokenizer, create, rewrite, generate, branches)
}


def main():
    """Answer the calls on stdin until it ends."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    answers = sys.stdout
    for line in sys.stdin:
        call = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):
            try:
                answer = {"result": _CALLS[call["call"]](**call["arguments"])}
            except Exception:  # the next call may succeed
                answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
