"""The Beam jobs: corpus -> vocabulary -> TFRecords -> (model) -> Parquet.

`preprocess` reads `sources`, trains the `vocabulary`, and writes `records`; `translate` reads
Parquet, calls the model and writes Parquet. The logic is in plain functions; the transforms
only wire it. Nothing here knows of the command line.
"""
