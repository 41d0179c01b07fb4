"""Read, write, list and delete files on this machine and on object stores.

paths    path functions, without access to files
stores   clients of S3, Google Cloud Storage and Azure, their settings, and their errors
listing  lists of the files in folders or of a glob
files    functions that open, read, write and delete files
locks    locks of folders on object stores
"""
