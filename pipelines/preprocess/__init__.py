"""The preprocess job: corpora to a dataset folder.

options            the options of a dataset
request            a dataset that is asked for
plan               shards, buckets and units, and who may write the dataset folder
vocabulary_sample  SentencePiece on a sample of lines
encode_steps       ListUnits | FindHeldOut | TrainVocabularies | EncodeUnits
merge_steps        MergeShards, and what a shard holds
manifest           WriteManifest: every pair accounted for in dataset.json
job                the steps wired, and run
progress           how far a run is
description        a plan and a dataset in words
"""
