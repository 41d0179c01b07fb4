"""The translation memory: a folder of earlier translations, which jobs share.

options          the options of `tt memory`
keys             the keys of entries
entries          files of entries, and their compaction
index            the local index of a memory
memory           look up and store translations during a job
checking         check the folder of a memory
tmx              read and write TMX files
corrections      read human translations from files
new_corrections  choose the human translations that a memory lacks
actions          the actions of `tt memory`
"""
