"""`tt train`, `tt average` and `tt export`: their output and their errors."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import last_error, run
from memory_store import MemoryStore
from toy import write_dataset
from trainers import eagerly

from tt.cli.commands.train import describe_report
from tt.model.dataset.manifest import DatasetManifest
from tt.model.folders import lock_folder
from tt.model.training.reports import Progress, Validation

SMALL = ("train", "--preset", "tiny", "--encoder-layers", "1", "--decoder-layers", "1",
         "--d-model", "16", "--heads", "2", "--d-ff", "16", "--batch-tokens", "100",
         "--warmup-steps", "5", "--save-every", "2", "--log-every",
         "2", "--dropout", "0", "--score-every", "0")  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def small_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "dataset"
    write_dataset(folder, train=50, validation=5)
    return folder


@pytest.fixture(scope="module")
def small_run(tmp_path_factory, small_dataset):
    """Return a read-only run folder with two checkpoints of four updates."""
    folder = tmp_path_factory.mktemp("small") / "run"
    with eagerly():
        assert run(*SMALL, "--dataset", small_dataset, "--run", folder, "--steps", "4") == 0
    return folder


def test_train_prints_reports_and_resumes(folder, small_dataset, capsys):
    small = [*SMALL, "--dataset", str(small_dataset)]
    assert run(*small, "--strategy", "mirrored", "--steps", "4") == 0
    printed = capsys.readouterr().err
    assert "Strategy mirrored: 1 replica on " in printed
    for word in ("step      2/4", "loss", "source + target tokens/s", "gradient norm", "padding",
                 "left 0:0", "validation: loss"):  # fmt: skip
        assert word in printed
    assert re.search(r"parameters, 4 steps \(\d+\.\d epochs of about \d+ steps\)", printed)
    assert (folder / "run/model/config.json").is_file()
    assert run(*small, "--steps", "6") == 0
    assert "Resuming at step 4" in capsys.readouterr().err
    assert run(*small, "--steps", "6", "--seed", "2") == 2
    assert "--seed was 1 and is now 2" in last_error(capsys)


def test_defaults_chosen_for_the_dataset_are_printed(folder, small_dataset, capsys):
    manifest = DatasetManifest.load(small_dataset)
    train = manifest.splits["train"]
    tokens = max(train.source_tokens, train.target_tokens)
    arguments = ("train", "--dataset", small_dataset, "--describe")
    assert run(*arguments) == 0
    counts = f"50 pairs, {tokens} tokens"
    chosen = (
        f"Defaults chosen for the dataset's size ({counts}): --preset tiny "
        "--dropout 0.25 --batch-tokens 2048 --steps 100 --warmup-steps 25 --peak-learning-rate "
        "0.0014 --validate-every 50 --save-every 50. Set an option to replace its default."
    )
    pairs = manifest.splits["validation"].records
    few = (
        f"tt: warning: {pairs} validation pairs cannot show which checkpoint is best. Hold out "
        "more pairs with `tt preprocess --validation` or `--validation-fraction`"
    )
    assert capsys.readouterr().err.splitlines() == [chosen, few]
    assert run(*arguments, "--devices", "cpu:0,cpu:1") == 0
    two = f"({counts}) and 2 replicas: "
    # One update has all pairs on one replica already, so two replicas need as many updates.
    assert capsys.readouterr().err.splitlines() == [chosen.replace(f"({counts}): ", two), few]
    given = ("--preset", "small", "--steps", "60", "--warmup-steps", "4000")
    assert run(*arguments, *given, "--peak-learning-rate", "0.004") == 0
    lines = capsys.readouterr().err.splitlines()
    assert "tokens): --batch-tokens 2048 --validate-every 50 --save-every 50. Set" in lines[0]
    assert lines[1:] == [
        "tt: warning: the learning rate reaches only 1.5% of its peak, because the warm-up (4,000 "
        "steps) is not shorter than the training (60 steps). Raise --steps or lower --warmup-steps",
        "tt: warning: training is likely to diverge, because the peak learning rate 0.004 is above "
        "0.00395, the limit for width 256. Lower --peak-learning-rate",
        few,
    ]


def test_resumed_run_keeps_its_options(folder, small_dataset, small_run, capsys):
    shutil.copytree(small_run, "run")
    before = (folder / "run/config.json").read_text()
    same = ("train", "--dataset", small_dataset)
    assert run(*same) == 0
    printed = capsys.readouterr().err
    assert "run is already trained to step 4; only writing the model" in printed
    assert "Resuming" not in printed
    assert "Defaults chosen" not in printed
    assert (folder / "run/config.json").read_text() == before
    assert run(*same, "--steps", "6") == 0
    after = json.loads((folder / "run/config.json").read_text())
    assert after.pop("training") == {**json.loads(before)["training"], "steps": 6}
    assert after.items() <= json.loads(before).items()
    # A given preset sets all its fields.
    assert run(*same, "--preset", "small") == 2
    assert "--d-model was 16 and is now 256" in last_error(capsys)
    # Without checkpoints, another dataset chooses new defaults.
    (folder / "other").mkdir()
    shutil.copy("run/config.json", "other/config.json")
    write_dataset(folder / "dataset", train=50, validation=5, fingerprint="another")
    assert run("train", "--dataset", "dataset", "--run", "other", "--describe") == 0
    assert "Defaults chosen for the dataset's size" in capsys.readouterr().err
    assert run("train", "--dataset", "dataset", "--run", "run") == 2
    there, here = Path(small_dataset).absolute(), folder / "dataset"
    found = DatasetManifest.load(there).fingerprint
    assert (
        f"run contains another run: --dataset was {there} (fingerprint {found}) and is now {here} "
        "(fingerprint another). Set the same options to resume that run, or choose another --run"
    ) in last_error(capsys)


def test_run_folder_as_dataset_is_an_error(folder, small_run, capsys):
    for name in (small_run, small_run / "model"):
        assert run("train", "--dataset", name, "--run", "new") == 2
        assert last_error(capsys).endswith(
            f"{name} is not a finished dataset folder (it has no dataset.json). Choose a folder "
            "that `tt preprocess` wrote, or repeat its `tt preprocess` command to finish it"
        )


def test_resuming_with_another_number_of_layers_is_an_error(folder, small_dataset, capsys):
    train = (*SMALL, "--dataset", small_dataset, "--steps", "1")
    assert run(*train, "--encoder-layers", "2") == 0
    assert run(*train, "--encoder-layers", "2", "--decoder-layers", "1") == 0  # the same numbers
    capsys.readouterr()
    assert run(*train, "--encoder-layers", "2", "--decoder-layers", "3") == 2
    assert "--decoder-layers was 1 and is now 3" in last_error(capsys)


def test_run_resumes_with_the_name_of_the_preset_that_its_dataset_chose(
    folder, small_dataset, shallow_presets, capsys
):
    short = ("train", "--dataset", small_dataset, "--steps", "1")
    assert run(*short) == 0
    assert "--preset tiny --dropout 0.25" in capsys.readouterr().err
    assert run(*short, "--preset", "tiny") == 0
    assert "run is already trained to step 1; " in capsys.readouterr().err


def test_run_resumes_with_its_own_dataset(folder, small_dataset, small_run, capsys):
    shutil.copytree(small_run, "r")
    write_dataset(folder / "dataset", train=40, validation=5, fingerprint="another")
    assert run("train", "--run", "r", "--steps", "5") == 0
    assert "Resuming at step 4 from r" in capsys.readouterr().err
    saved = json.loads((folder / "r/config.json").read_text())["dataset_source"]["folder"]
    assert saved == str(small_dataset)
    assert run("train", "--run", "r", "--dataset", "dataset", "--steps", "6") == 2
    assert f"r contains another run: --dataset was {small_dataset} (" in last_error(capsys)
    # A new run uses ./dataset.
    assert run(*SMALL, "--run", "new", "--steps", "1") == 0
    saved = json.loads((folder / "new/config.json").read_text())["dataset_source"]["folder"]
    assert saved == str(folder / "dataset")


def test_train_prints_the_share_of_the_scores(folder, capsys):
    write_dataset(folder / "dataset", train=50, validation=60)
    assert run(*SMALL, "--steps", "2", "--score-every", "2", "--validate-every", "2") == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("--score-sentences 50" in line for line in lines), "the run stores the number"
    pattern = r"BLEU and chrF of 50 of 60 validation sentences took \d+% of the time"
    assert sum(bool(re.fullmatch(pattern, line)) for line in lines) == 1


def test_run_with_a_moved_dataset_uses_the_default_folder(folder, small_dataset, small_run, capsys):
    shutil.copytree(small_run, "r")
    config = json.loads((folder / "r/config.json").read_text())
    config["dataset_source"]["folder"] = "/moved/away"
    (folder / "r/config.json").write_text(json.dumps(config))
    assert run("train", "--run", "r", "--steps", "5") == 2
    assert "/moved/away is not a finished dataset folder" in last_error(capsys)
    shutil.copytree(small_dataset, "dataset")
    assert run("train", "--run", "r", "--steps", "5") == 0


def test_remote_dataset_is_copied_to_the_cache(folder, small_dataset):
    MemoryStore.clear()
    for path in small_dataset.iterdir():
        MemoryStore.put(f"mem://bucket/data/{path.name}", path.read_bytes())
    remote = ("--dataset", "mem://bucket/data", "--cache", "cache")
    assert run(*SMALL, *remote, "--steps", "1") == 0
    assert (folder / "run/model/config.json").is_file()
    [copied] = (folder / "cache").rglob("dataset.json")
    assert copied.read_bytes() == (small_dataset / "dataset.json").read_bytes()


def test_errors_of_train(folder, small_dataset, capsys):
    assert run("train") == 2
    assert "dataset is not a finished dataset folder" in last_error(capsys)
    (folder / "dataset").symlink_to(small_dataset)
    for flags, message in {
        ("--strategy", "multi-worker"): "TF_CONFIG must describe a cluster",
        ("--devices", "gpu:7"): "this machine has no device 'gpu:7', only CPU:0",
        ("--preset", "tiny", "--heads", "7"): "multiple of twice --heads. Received: 128 and 7",
        ("--run", "hdfs://bucket/run"): "tt does not support hdfs://",
        ("--preset", "tiny", "--batch-tokens", "5"): "has 8 tokens, but a batch has 5",
    }.items():
        assert run("train", *flags) == 2, flags
        assert message in last_error(capsys)
    assert not (folder / "run").exists()


def test_yaml_file_sets_options_and_flags_take_precedence(folder, small_dataset, capsys):
    (folder / "recipe.yaml").write_text(
        "preset: tiny\nencoder_layers: 1\ndecoder_layers: 1\nd_model: 16\nheads: 2\nd_ff: 16\n"
        "norm: pre\ntie_embeddings: false\nbatch_tokens: 100\npeak_learning_rate: 1e-3\nsteps: 2\n"
        "score_every: 0\nclip_norm: 1\n"
    )
    arguments = ["train", "--config", "recipe.yaml", "--dataset", str(small_dataset)]
    assert run(*arguments, "--steps", "3") == 0
    config = json.loads((folder / "run/config.json").read_text())
    assert config["model"]["norm"] == "pre"
    assert config["model"]["tie_embeddings"] is False
    assert config["training"]["steps"] == 3
    assert config["training"]["peak_learning_rate"] == 0.001
    assert config["training"]["clip_norm"] == 1.0
    (folder / "recipe.yaml").write_text("droput: 0.1\n")
    capsys.readouterr()
    assert run(*arguments) == 2
    assert "there is no option droput. Did you mean dropout?" in last_error(capsys)


def test_describe_works_while_the_run_is_trained(folder, small_dataset, capsys):
    train = (*SMALL, "--dataset", small_dataset, "--steps", "1", "--run", "busy")
    assert run(*train) == 0
    capsys.readouterr()
    with lock_folder("busy", name="train.lock", activity="trains", remedy="x"):
        assert run(*train, "--describe") == 0
        assert "all" in capsys.readouterr().out
        assert run(*train) == 2
        assert "another process trains in" in last_error(capsys)


def test_describe_checks_the_run_folder(folder, small_dataset, capsys):
    Path("notes.txt").write_text("mine")
    describe = (*SMALL, "--dataset", small_dataset, "--describe", "--run")
    assert run(*describe, "notes.txt") == 2
    assert last_error(capsys) == ("tt: error: notes.txt is a file. Choose a folder as --run")
    assert run(*describe, ".") == 2
    assert "contains files that belong to no run" in last_error(capsys)


def test_describe_prints_the_parameters_by_part_without_training(folder, small_dataset, capsys):
    assert run(*SMALL, "--dataset", small_dataset, "--describe", "--norm", "pre") == 0
    _, parameters, schedule, masks = re.split(
        r"\n(?:Parameters|Learning rate)\n|\n(?=Masks)", capsys.readouterr().out
    )
    assert re.search(r"^ *5 +0.004 +█{30}$", schedule, re.MULTILINE)
    assert "Padding mask, 4 rows: " in masks
    assert "Look-ahead mask, the same for all rows: " in masks
    rows = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^(\S+) +([\d,]+)$", parameters, re.MULTILINE)
    }
    assert not (folder / "run").exists()
    # The width, the inner width and the number of ids are 16. An attention has 4 matrices, and a
    # norm has 2 vectors.
    assert rows.pop("all") == sum(rows.values())
    assert rows == {
        "embedding": 16 * 16,
        "encoder_0/attention": 4 * 16 * 16,
        "encoder_0/attention_norm": 2 * 16,
        "encoder_0/feed_forward": 2 * 16 * 16 + 2 * 16,
        "encoder_0/feed_forward_norm": 2 * 16,
        "decoder_0/attention": 4 * 16 * 16,
        "decoder_0/attention_norm": 2 * 16,
        "decoder_0/cross_attention": 4 * 16 * 16,
        "decoder_0/cross_attention_norm": 2 * 16,
        "decoder_0/feed_forward": 2 * 16 * 16 + 2 * 16,
        "decoder_0/feed_forward_norm": 2 * 16,
        "encoder_norm": 2 * 16,
        "decoder_norm": 2 * 16,
    }


def test_lines_of_reports():
    progress = Progress(
        step=1200, steps=8000, epoch=3, loss=3.14159, nll=2.2513, perplexity=9.5, accuracy=0.5,
        gradient_norm=0.4, learning_rate=0.00123,
        source_tokens_per_second=5012.3, target_tokens_per_second=4800.0,
        padding=0.0871, seconds_left=3725.2,
    )  # fmt: skip
    assert describe_report(progress) == (
        "step  1,200/8,000  loss 3.142  nll 2.251  perplexity 9.50  accuracy 50.0%  rate 1.23e-03  "
        "gradient norm 0.40  5,012 + 4,800 source + target tokens/s  padding 9%  left 1:02:05"
    )
    validation = Validation(step=1200, loss=3.0, nll=2.1401, perplexity=8.5, accuracy=0.6)
    assert describe_report(validation) == (
        "step  1,200  validation: loss 3.000  nll 2.140  perplexity 8.50  accuracy 60.0%"
    )
    scored = dataclasses.replace(validation, bleu=32.4711, chrf=56.7, is_best=True)
    assert describe_report(scored).endswith("60.0%  BLEU 32.47  chrF 56.70  (best)")


def test_average_and_export(folder, small_run, capsys):
    assert run("average", "--run", small_run, "--output", "mean") == 0
    assert "mean, the mean of ckpt-4, ckpt-2" in capsys.readouterr().err
    assert run("average", "--run", small_run, "--output", "mean") == 2
    assert "mean already exists. Choose another folder, or set --overwrite" in last_error(capsys)
    before = (folder / "mean/config.json").read_bytes()
    arguments = ("average", "--run", small_run, "--output", "mean", "--overwrite")
    assert run(*arguments, "--count", "1") == 0
    assert "mean, the mean of ckpt-4" in capsys.readouterr().err
    assert (folder / "mean/config.json").read_bytes() != before
    assert run(*arguments) == 0
    (folder / "mine").mkdir()
    (folder / "mine/notes.txt").touch()
    assert run("average", "--run", small_run, "--output", "mine", "--overwrite") == 2
    assert "mine exists and is not an exported or imported model" in last_error(capsys)
    capsys.readouterr()
    assert run("average", "--run", small_run, "--count", "3", "--output", "three") == 2
    assert last_error(capsys) == (
        f"tt: error: {small_run}/checkpoints has 2 last checkpoints. Requested: 3. Train longer, "
        "or keep more with `tt train --keep-checkpoints`"
    )
    assert run("average", "--run", small_run, "--of", "newest") == 2
    assert last_error(capsys) == "tt: error: --of must be one of last, best. Received: newest"
    assert run("average", "--count", "0") == 2
    assert last_error(capsys) == "tt: error: --count must be at least 1. Received: 0"
    assert run("average", "--run", "nowhere") == 2
    assert "nowhere is not a run folder" in last_error(capsys)
    assert run("export", small_run, "--output", "two", "--checkpoint", "2") == 0
    assert run("export", small_run, "--output", "best", "--checkpoint", "best") == 0
    assert run("export", small_run, "--output", "last") == 0
    weights = {name: (folder / name / "model.weights.h5").read_bytes() for name in
               ("mean", "two", "last")}  # fmt: skip
    assert len(set(weights.values())) == 3
    assert run("export", small_run, "--output", "three", "--checkpoint", "3") == 2
    assert "no checkpoint '3'. Choose from: ckpt-2, ckpt-4, best-4" in last_error(capsys)
    assert run("export", "mean", "--output", "four", "--checkpoint", "4") == 2
    assert re.search("mean is not a run folder", last_error(capsys))
