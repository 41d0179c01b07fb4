"""Streams: messages are translated as they come.

options          the options of a stream
addresses        topics, subscriptions and folders
messages         messages, their texts and their answers
batches          how many messages are translated together
metrics          counts for Prometheus, the status line and the metrics file
plan             the interface of a checked input and output
side_by_side     the texts of one call on all cores
transforms       TranslateMessages, for runners with workers of their own
connectors       Beam's own connectors around it, on Dataflow
job              checks, then runs or submits
kafka_clients    clients made from the user's settings, and their errors as one line
kafka_plan       topics, rights and delivery, checked before a run
kafka_writer     answers and offsets, written together
kafka_reader     the partitions of this member, and their offsets
kafka_member     the loop: read, translate, write, commit
pubsub_clients   credentials, and errors in one line
pubsub_messages  messages and answers as Pub/Sub messages
pubsub_plan      subscription and topics, checked before a run
pubsub_member    the loop: pull, translate, publish, acknowledge
"""
