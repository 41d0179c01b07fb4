"""The preprocess job: corpora to a dataset folder.

naming             corpora as a user names them
corpora            corpora opened by their names
sources            a corpus or a file of one: rows of source, target and fault
parquet_columns    two columns of a Parquet file
ready_made         the embedded corpus, and TensorFlow Datasets
options            the options of a dataset
request            a dataset that is asked for
plan               shards, buckets and units, and the claim of the dataset folder
vocabularies       trained on a sample of lines, written, checked and loaded
encode_steps       ListUnits | FindHeldOut | TrainVocabularies | EncodeUnits
merge_steps        MergeShards, and what a shard holds
manifest           totals, and every pair accounted for in dataset.json
job                the steps wired, run, and watched
description        a plan and a dataset for people
work_folder        the names in the work folder of a run
units              units of work: runs of rows of a source
characters         scripts, counts of characters, mojibake
filters            the filters, each with its reason
cleaning           rows to normalized pairs with placeholders, and the pairs to hold out
held_out           digests of texts and pairs, and what training must not see
encoding           a unit of rows to records and rejected pairs
spills             spill files, and the merge of a bucket
rejected           rejected pairs, with reason and place
"""
