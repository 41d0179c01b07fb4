"""Tables in files: found, read in any format, and written.

utf8          text files that are not UTF-8, and where
delimited     CSV and TSV
jsonl         JSON Lines
ipc           Arrow files and streams
reading       any format, told by its name
finding       the files that a user names
types         casts, and indices of dictionaries
text_columns  strings, lists of strings and fields of structs
footers       schemas of other programs in footers of Parquet
formats       the formats of what is written
writing       Parquet, JSONL and CSV
"""
