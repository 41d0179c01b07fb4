"""The imports of the server of `commands`, which it makes before it forks."""

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
gc.freeze()  # so that children do not scan the objects of the imports
gc.set_threshold(50_000, 20, 20)  # because tracing creates hundreds of thousands of objects
