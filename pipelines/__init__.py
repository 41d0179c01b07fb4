"""The Beam jobs: corpus -> vocabulary -> TFRecords -> (model) -> Parquet.

Preprocessing reads in this order: `preprocess` (the job), `transforms` and `merging` (its steps),
`sources`, `tfds_source` and `units` (corpora as runs of rows), `vocabulary`, `encoding` and
`cleaning` (rows to ids), `records` (ids to spills to shards) and `accounting` (every pair counted).
Translation: `translate` (the job), `translation_input` and `translation_plan` (what is to be done),
`translation_units`, `translation_table` and `cells` (units to tables to texts),
`translation_manifest` (what was done) and `parquet`. Both run by `runner` and write by `files`.
`demo_corpus` is the embedded corpus, on `demo_grammar` and `demo_lexicon`.

The logic is in plain functions; the transforms only wire it. Nothing here knows of the command
line.
"""
