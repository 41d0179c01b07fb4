"""Streams of Pub/Sub.

clients   credentials, and errors in one line
messages  messages and answers as Pub/Sub messages
plan      subscription and topics, checked before a run
member    the loop: pull, translate, publish, acknowledge
"""
