"""The Transformer of "Attention Is All You Need" (2017): its parts, its training and its decoding.

Read in this order: `config` (what a model is), `layers` and `transformer` (the forward pass),
`search` (greedy and beam), `dataset` and `training` (records to weights), `translator`
(an exported folder to translations). `vocabulary` and `artifacts` hold what is shared with
`pipelines`; they import neither TensorFlow nor Beam.
"""

import os

# On CPUs without AVX-512 VNNI, TensorFlow leaves oneDNN off: a training step is up to 1.4 times
# faster with it. It is read once, when TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
