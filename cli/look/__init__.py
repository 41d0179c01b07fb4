"""Commands that look at what others made, or show all of them.

attention       tt attention
report          tt report
show            tt show
evaluate        tt evaluate
demo            tt demo
doctor          tt doctor
init            tt init
dataset_tables  a dataset as tables
folder_tables   models, runs, translations and tfds: names as tables
blocks          tables, bars and texts on a terminal
"""
