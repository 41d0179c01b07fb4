"""Streams of Kafka.

clients     clients and their errors
source      a topic as a source of Beam
writer      answers to topics
connecting  topics looked at before a run
"""
