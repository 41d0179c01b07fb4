"""The Transformer of "Attention Is All You Need" (2017): its parts, its training and its decoding.

Read in this order: `config` (what a model is), `layers` and `transformer` (the forward pass),
`search` (greedy and beam), `dataset` and `training` (records to weights), `translator`
(an exported folder to translations). `vocabulary` and `artifacts` hold what is shared with
`pipelines`; they import neither TensorFlow nor Beam.
"""
