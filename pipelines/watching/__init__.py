"""Watched folders: the tables that come into one, translated as they come.

inbox    which files are there, and which of them are whole
records  what became of each file
request  what is asked for, checked
job      the loop: look, translate, wait
"""
