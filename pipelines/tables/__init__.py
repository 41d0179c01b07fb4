"""Tables and texts in files: found, read in any format, and written.

finding    formats and encodings by their names, and the files that a user names
damage     errors of bad files, as one line
text       text files, decompressed and read by lines
delimited  CSV and TSV
jsonl      JSON Lines
columns    types of columns, casts, and texts in them
parquet    footers of Parquet, rows of an open file, writing
int96      INT96 timestamps of Parquet, read as microseconds
memory     the memory that rows take, and tables cut by it
forward    runs of rows of Parquet, read from front to back
reading    any format, and Arrow files and streams
writing    Parquet, JSONL and CSV
"""
