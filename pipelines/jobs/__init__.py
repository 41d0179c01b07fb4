"""The parts that all resumable jobs share.

dry_run   the lines of a dry run that both jobs print
locks     the lock of an output folder
progress  how far a job is, as one line
running   the output folder claimed, and the pipeline run
"""
