"""The dataset folder: preprocessing writes it, and training reads it.

manifest         the file names in a dataset folder, and dataset.json
tfrecords        encoding of examples, and the TFRecord framing with checksums
changes          subword dropout and augmentation of encoded texts
batches          padded batches from records, in an order that can be resumed
"""
