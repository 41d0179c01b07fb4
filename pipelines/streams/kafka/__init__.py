"""Streams of Kafka: each process is a member of a consumer group.

clients  clients made from the user's settings, and their errors as one line
plan     topics, rights and delivery, checked before a run
writer   answers and offsets, written together
reader   the partitions of this member, and their offsets
member   the loop: read, translate, write, commit
"""
