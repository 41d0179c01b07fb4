"""Find, read and write files with tables and texts.

formats       names of formats, compressions and encodings
finding       the search for the files that a user names
damage        one-line error messages for damaged files
faults        rows that cannot be read
interface     the interface of readers
text_files    text files, decompressed, as streams of UTF-8
lines         reader of texts, line-aligned texts, and cells by number
ranges        ranges of lines that several workers read
delimited     reader of CSV and TSV files
jsonl         reader of JSON Lines files
json_arrays   arrays of JSON objects, as lines
json_texts    reader of the texts under some keys of JSON Lines
columns       column types, casts, and the texts in a column
parquet       reader of Parquet: footers, and runs of rows
partitions    partition columns in the names of folders
conditions    conditions in SQL on the rows of a table
pieces        the memory that rows need, and tables of limited memory
arrow         reader of Arrow files and streams
reading       reader of every format
writing       writers of Parquet, JSONL and CSV files
lakehouse     addresses of tables, and the schemas of their files
delta         Delta Lake tables; needs an optional package
iceberg       Iceberg tables; needs an optional package
"""
