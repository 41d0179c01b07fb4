"""The parts that all resumable jobs share.

progress  how far a job is, as one line
running   the output folder claimed, and the pipeline run
"""
