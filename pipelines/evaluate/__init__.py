"""Translations of files scored against references.

request  the way in: what is asked for, and the scores
outputs  the Parquet files of a folder in the order of the input
columns  texts of Parquet columns
lines    texts of files and pipes, a line each
"""
