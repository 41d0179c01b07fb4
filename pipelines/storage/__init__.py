"""Files on any file system that Beam knows.

paths          paths, and why one cannot be looked up
listing        the files in a folder, and the files that a pattern names
object_stores  one client of Amazon's S3 per process, and a first look at a bucket
files          files opened, read, written whole, deleted
"""
