"""The Beam jobs: corpus -> vocabulary -> TFRecords -> (model) -> Parquet.

storage          files on any file system that Beam knows
tables           tables in files of any format
runners          where and how a job runs
remote           a job on machines of others
flags            what is suspicious about a translation
texts            texts to translations, no files
inference        a model at work in a pipeline
corpora          what a corpus is
pairs            what becomes of a pair between corpus and shard
jobs             what resumable jobs share
preprocess       the preprocess job
translate        the Parquet job
streams          the job on streams
watching         watched folders, a job for each file
evaluate         translations scored against references
summaries        what lies in folders, as plain data
report           pages to look at
"""
