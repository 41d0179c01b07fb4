"""The job on streams: messages as they come, with their translations.

options        the options of a stream
addresses      where messages come from and go to
messages       messages, their texts, and what becomes of both
ends           where a stream comes from and goes to
kafka          streams of Kafka
pubsub         streams of Pub/Sub
open_once      what is open once in a process
live_run       what is counted while a stream runs, and its end
metrics        that told: lines, JSON, Prometheus
side_by_side   the texts of one call on all cores
transforms     ReadMessages | TranslateMessages | WriteAnswers
job            checked, wired and run
"""
