"""What becomes of a pair between corpus and shard. No Beam.

work_folder  the names in the work folder of a run
units        units of work: runs of rows of a source
characters   scripts, counts of characters, mojibake
filters      the filters, each with its reason
cleaning     rows to normalized pairs, the text filters, and the pairs to hold out
digests      hashes of texts and pairs
examples     tokens to tf.train.Examples
held_out     what training must not see
encoding     a unit of rows to records and rejected pairs
spills       spill files, and the merge of a bucket
rejected     rejected pairs, with reason and place
"""
