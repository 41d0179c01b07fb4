"""What passes from preprocessing to training: the one schema.

manifest         names in a dataset folder, and dataset.json
tfrecords        the framing of records and its checksums
windows          records read, parsed and checked, some thousand at a time
batches          records to padded batches, epoch after epoch
subword_dropout  other segmentations of a text in each epoch
"""
