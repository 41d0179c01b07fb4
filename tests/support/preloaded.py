"""What the server of `commands` imports before it forks."""

import gc
import importlib

import quick_beam

for name in (
    "tt.cli.commands.train",
    "tt.cli.main",
    "fsspec",
    "tt.model.training.trainer",
    "tt.pipelines.preprocess.job",
    "tt.pipelines.streams.job",
    "tt.pipelines.translate.job",
    "sacrebleu.metrics",
    "tensorboard.summary.v2",
):
    importlib.import_module(name)
quick_beam.remember()
gc.collect()
gc.freeze()  # what the imports made is not looked at again in each child
gc.set_threshold(50_000, 20, 20)  # tracing makes objects by the hundred thousand
