"""What lies in folders, and what a name offers, as plain data.

folders       what kind of folder a path names, and its language
translated    all of a translated folder
texts         texts and their translations: statuses, flags, lengths, scores, outliers
tfds_names    the datasets, subsets, splits and sizes that a tfds: name offers
"""
