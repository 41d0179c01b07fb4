"""What lies in folders, and what a name offers, as plain data.

folders       what kind of folder a path names, and its language
translated    all of a translated folder
texts         texts and their translations: statuses, flags, lengths, scores, outliers
tfds_names    the datasets, subsets, splits and sizes that a tfds: name offers
project       what lies in a folder that tt could work on
project_file  the text of a tt.yaml for it
doctor        what of tt will work on this machine
packages      installed packages, against what is required and locked
probes        what programs and libraries answer
machine       cores, memory, disks and credentials
"""
