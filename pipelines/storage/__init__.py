"""Files on any file system that Beam knows.

paths       paths, and why one cannot be looked up
listing     what lies in a folder, and what a pattern names
amazon      one client of Amazon's S3 a process
files       files opened, read, written whole, deleted; what means a damaged one
first_look  whether Google Cloud Storage answers, told within seconds
int96       INT96 timestamps of Parquet, read as microseconds
parquet     footers, rows of an open file, text cells, writing
forward     runs of rows of Parquet, read from front to back
memory      the memory that rows take, and tables cut by it
text_files  text decompressed, summed up, and told from wide encodings
"""
