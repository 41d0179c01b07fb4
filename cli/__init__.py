"""The command line: it parses arguments, calls `pipelines` and `model`, and prints results.

main             the entry point of `tt`
commands         the commands
decorators       the decorator that all commands share
flags_of_fields  flags generated from the fields of dataclasses
shared_options   command names, and options and paths that several commands share
config_file      --config FILE.yaml
errors           errors and notices as single lines
signals          finishing the work in progress after Ctrl-C or SIGTERM
libraries        imports of large libraries without their log messages
"""
