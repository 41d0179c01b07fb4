"""Streams of Pub/Sub.

clients     clients and their errors
leases      messages in hand, kept from coming again, and acknowledged
source      a subscription as a source of Beam
writer      answers to topics
connecting  subscription and topics looked at before a run
transforms  both on Dataflow, by its own reader and writer
"""
