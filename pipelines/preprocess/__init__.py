"""The preprocess job: corpora to a dataset folder.

options            the options of a dataset
request            a dataset that is asked for
plan               shards, buckets and units, and the claim of the dataset folder
vocabulary_files   vocabularies in the dataset folder, and whether they are whole
vocabulary_sample  SentencePiece on a sample of lines
encode_steps       ListUnits | FindHeldOut | TrainVocabularies | EncodeUnits
merge_steps        MergeShards, and what a shard holds
manifest           totals, and every pair accounted for in dataset.json
job                the steps wired, run, and watched
description        a plan and a dataset for people
work_folder        the names in the work folder of a run
units              units of work: runs of rows of a source
characters         scripts, counts of characters, mojibake
filters            the filters, each with its reason
cleaning           rows to normalized pairs, the text filters, and the pairs to hold out
digests            hashes of texts and pairs
examples           tokens to tf.train.Examples
held_out           what training must not see
encoding           a unit of rows to records and rejected pairs
spills             spill files, and the merge of a bucket
rejected           rejected pairs, with reason and place
"""
