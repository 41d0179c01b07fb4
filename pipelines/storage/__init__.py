"""Access files on any file system that Beam supports.

paths          path functions, and error messages for paths that cannot be looked up
listing        lists of the files in a folder or of a glob
object_stores  shared S3 clients, and a quick check that a bucket answers
files          functions that open, read, write and delete files
"""
