"""The Beam jobs: corpus -> vocabulary -> TFRecords -> (model) -> Parquet.

storage     files on any file system that Beam knows
tables      tables in files of any format
runners     this machine, Flink and Dataflow
texts       texts to translations and their flags
inference   a model at work in a pipeline
jobs        what resumable jobs share
preprocess  the preprocess job, from pairs to shards
translate   the Parquet job, and watched folders
streams     the job on streams
reports     summaries, pages, attention and scores
"""
