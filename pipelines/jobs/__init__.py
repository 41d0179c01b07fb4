"""The parts that all resumable jobs share.

locks     the lock of an output folder
progress  how far a job is, as one line
running   the output folder claimed, and the pipeline run
"""
