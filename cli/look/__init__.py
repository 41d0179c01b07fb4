"""Commands that look at what others made, or show all of them.

attention  tt attention
report     tt report
evaluate   tt evaluate
demo       tt demo
"""
