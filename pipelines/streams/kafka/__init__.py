"""Streams of Kafka.

clients      clients and their errors
source       a topic as a source of Beam
committing   offsets of a group, and who commits them
signs        signs of runs, beside the offsets
positions    where partitions are read on
connections  the consumers of a process, shared by its readers
writer       answers to topics
connecting   topics looked at before a run
"""
