"""Streams: messages are translated as they come.

options       the options of a stream
addresses     topics, subscriptions and folders
messages      messages, their texts and their answers
batches       how many messages are translated together
metrics       counts for Prometheus, the status line and the metrics file
plan          the interface of a checked input and output
kafka         Kafka: members of a consumer group
pubsub        Pub/Sub: processes that share a subscription
side_by_side  the texts of one call on all cores
transforms    TranslateMessages, for runners with workers of their own
connectors    Beam's own connectors around it, on Dataflow
job           checks, then runs or submits
"""
