"""Files on any file system that Beam knows.

paths       paths, and why one cannot be looked up
listing     what lies in a folder, and what a pattern names
files       files opened, read, written whole, deleted
parquet     footers, runs of rows, writing
text_cells  text columns and their cells
damage      errors that mean a damaged file
"""
