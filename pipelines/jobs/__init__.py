"""The framework of resumable jobs.

folders   the claim of an output folder, and its lock
progress  the progress of a job, as one line
running   the run of a pipeline in a claimed folder, and the facts of a dry run
"""
