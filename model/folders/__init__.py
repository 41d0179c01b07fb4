"""Folders of ours, on this machine or on gs://.

access       files that this user may not read or write
cache        the folder of caches of this user
differences  saved options compared with those asked for now
json_files   JSON of other programs, with limits
atomic       folders that are whole or not there
durable      files and folders that survive a power loss
long_work    how much of what takes long is done
lock         one process at a time in a folder
remote       files on a file system that TensorFlow knows
"""
