"""The framework of resumable jobs.

folders   checks that a job may use an output folder, and locks the folder
progress  the status line of a job
running   runs a pipeline in a locked output folder, and describes a dry run
"""
