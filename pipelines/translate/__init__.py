"""The job on tables: rows, with their translations beside them.

options     the options of a job
plan        units of work and the plan that lists them
job_folder  _tt/: its names, its claim, its manifest, and the progress
inputs      the input files, looked at first
counting    the rows of input files that are read from their start
table       a table with translations beside its texts
units       a run of rows to one output file
job         planned, checked, wired and run
manifest    what _tt/manifest.json holds, and the summary for the user
inbox       the files of a watched folder
watching    the tables that arrive in a folder, translated
"""
