"""The job that translates tables, and the translation of watched folders.

options     the options of a job
plan        the plan of a job, with its units of work
lakehouse   tables of Delta Lake and Iceberg as input and output
job_folder  the files in _tt/, and the progress that they show
inputs      checks of the input files and of their columns
counting    counts the rows of files that can only be read from their start
table       adds the columns of translations to a table
units       translates a unit of work, which is one output file
job         plans and checks a job, and builds and runs its pipeline
manifest    statistics of units, the content of _tt/manifest.json, and the summary
inbox       finds complete files in a watched folder
watching    translates the tables that arrive in a watched folder
"""
