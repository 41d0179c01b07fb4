"""Streams: translate messages from Kafka, Pub/Sub or a folder as they arrive.

options        the options of a stream, and its addresses
messages       reads the texts in messages, and makes their answers
metrics        counts work for Prometheus, the status line and the metrics file
plan           the interface between the job and a broker, and the batch size
connectors     TranslateMessages between Beam's own connectors, for Dataflow
job            checks a stream, then runs it here or submits it
kafka_clients  creates clients with the user's settings, and explains their errors
kafka_commits  writes answers and commits offsets
kafka_reader   reads the partitions of this member, and tracks their offsets
kafka_member   checks topics, then reads, translates, writes and commits in a loop
pubsub         checks a subscription, then pulls, translates, publishes and acknowledges
"""
