"""Tables and texts in files: found, read in any format, and written.

finding    formats and encodings by their names, and the files that a user names
damage     errors of bad files, as one line
text       text files, decompressed and read by lines
delimited  CSV and TSV
jsonl      JSON Lines
columns    types of columns, casts, and texts in them
parquet    footers of Parquet, rows of an open file, writing, INT96 timestamps
forward    runs of rows of Parquet, read from front to back, and the memory of rows
reading    any format, and Arrow files and streams
writing    Parquet, JSONL and CSV
"""
