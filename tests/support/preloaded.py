"""What the server of `commands` imports before it forks."""

import gc
import importlib

import quick_beam

for name in (
    "cli.commands.train",
    "cli.main",
    "model.training.trainer",
    "pipelines.preprocess.job",
    "pipelines.translate.job",
    "sacrebleu.metrics",
):
    importlib.import_module(name)
quick_beam.remember()
gc.freeze()  # what the imports made is not looked at again in each child
