"""What a corpus is.

rows             rows as Arrow tables of source, target and fault
source           a corpus, or a file of one
encodings        the encodings of text files
lines            lines of text files, plain or compressed
text             line-aligned pairs, TSV and JSONL
parquet_columns  two columns of a Parquet file
tfds             TensorFlow Datasets
embedded         the embedded corpus
naming           corpora as a user names them
opening          corpora opened by their names
"""
