"""Streams: translate messages as they come.

options        the options of a stream, and its addresses
messages       messages, their texts and their answers
metrics        counts for Prometheus, the status line and the metrics file
plan           the interface of a checked input and output, and the size of batches
side_by_side   one call of a model on all cores
connectors     TranslateMessages between Beam's own connectors, on Dataflow
job            checks, then runs or submits
kafka_clients  clients from the user's settings, and their errors in one line
kafka_writer   answers and offsets, written together
kafka_reader   the partitions of this member, and their offsets
kafka_member   topics checked before a run, and the loop: read, translate, write, commit
pubsub         the same for a subscription: pull, translate, publish, acknowledge
"""
