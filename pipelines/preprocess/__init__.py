"""The preprocess job, which makes a dataset folder from corpora.

naming             parse corpus strings and weights
corpora            open corpora by their names, and list them in a file
headers            find the line with column names in a TSV file
sources            corpora and their files, read as rows of source, target and fault
parquet_columns    two columns of a Parquet file as a source
ready_made         the embedded corpus, and TensorFlow Datasets
options            the options of a dataset
request            a request for a dataset, which plans the job
plan               the plan of a dataset, and the claim of the dataset folder
sizes              the sizes of units, shards and buckets
pipes              read pipes, whose sizes are not known in advance
vocabularies       sample lines, train vocabularies, and write, check and load them
encode_steps       the steps ListUnits, FindHeldOut, TrainVocabularies and EncodeUnits
merge_steps        the step MergeShards, and the statistics of shards
manifest           add up the statistics, and write dataset.json
job                wire, run and watch the steps
first_rows         refuse corpora with swapped or shifted sides before a run
shifts             find rows whose sides are shifted against each other
description        texts for users about a plan and about a dataset
work_folder        the file names in the work folder of a run
units              units of work, which are runs of consecutive rows
entities           decode HTML entities
characters         scripts, counts of characters by class, and mojibake
filters            the filters and their reason codes
languages          sample the languages of corpora, and warn about unexpected ones
judging            compare the languages and the meaning of the sides of pairs
placeholders       replace shared spans and shared tokens by placeholders
cleaning           normalize and filter pairs, place placeholders, and find pairs to hold out
held_out           digests of texts and pairs, and the rules for held-out pairs
encoding           encode the rows of a unit, and collect rejected pairs
spills             spill files, and the merge of a bucket
rejected           tables of rejected pairs, with reasons, files and lines
"""
