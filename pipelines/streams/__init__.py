"""Streams: translate messages from Kafka, Pub/Sub or a folder as they arrive.

options        the options of a stream, and its addresses
messages       messages, the texts in them, and their answers
metrics        counts for Prometheus, the status line and the metrics file
plan           the interface between the job and a broker, and the batch size
side_by_side   one call of a model divided among all cores
connectors     TranslateMessages between Beam's own connectors, for Dataflow
job            checks a stream, then runs it here or submits it
kafka_clients  clients with the user's settings, and their errors as one line
kafka_writer   writes answers and commits offsets
kafka_reader   reads the partitions of this member, and tracks their offsets
kafka_member   checks topics before a run, then loops: read, translate, write, commit
pubsub         the same for a subscription: pull, translate, publish, acknowledge
"""
