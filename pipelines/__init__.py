"""Beam pipelines: corpora -> vocabulary -> TFRecords -> (model) -> translated tables.

tables      readers and writers of Parquet, CSV, TSV, JSONL and Arrow files
runners     Beam's local runner, Flink and Dataflow
texts       translation of texts, and quality flags
inference   models inside a pipeline
jobs        the framework of resumable jobs
memory      the translation memory, which jobs share
preprocess  the job that turns sentence pairs into training shards
translate   the job that translates tables, and watched folders
streams     the job that translates messages of Kafka and Pub/Sub
reports     summaries, report pages, attention maps and scores
"""
