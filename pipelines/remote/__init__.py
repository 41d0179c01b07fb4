"""A job on machines of others: Dataflow, Flink.

options   the flags that say where and on what a job runs
checks    what is known before a job is sent
dataflow  what a job of tt wants of Dataflow
flink     what a job of tt wants of Flink
wheel     this very tt and its requirements, for workers without an image of it
"""
