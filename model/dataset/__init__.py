"""What passes from preprocessing to training: the one schema.

manifest         names in a dataset folder, and dataset.json
tfrecords        records as bytes: examples, the framing and its checksums
batches          records to windows, and windows to padded batches, epoch after epoch
"""
