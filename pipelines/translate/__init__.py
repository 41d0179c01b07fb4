"""The job that translates tables, once or again and again on an input that grows.

options        the options of a job
bad_rows       the content of input rows that cannot be read
column_choice  the choice of the input columns that the output contains
column_types   the types of columns, which may change between runs
plan           the plan of a job, with its units of work
lakehouse      tables of Delta Lake and Iceberg as input and output
job_folder     the files in _tt/, and the progress that they show
folder_state   compares a requested job with the state of its output folder
inputs         checks of the input files and of their columns
samples        reads samples of the texts before the job starts
places         checks the names of input files, and the place of the output folder
counting       counts the rows of files that can only be read from their start
table          adds the columns of translations to a table
schemas        extends the schemas that other programs store in Parquet files
pairs          turns translated tables into a corpus of back-translations
unit_rows      divides files into units, and reads the rows of a unit
unit_records   the records of units, which show what is finished
deduplication  translates each distinct sentence of a job before its units
units          translates a unit of work, which is one output file
steps          the steps of the pipeline
last_step      adds up the units, and writes the manifest
job            plans and checks a job, and builds and runs its pipeline
manifest       statistics of units, the content of _tt/manifest.json, and the summary
generations    compares the input of a run with the input of the run before it
previous       keeps the translations of rows that have not changed
watching       repeats a job on an input that grows
"""
