"""The command line: parses, calls `pipelines` and `model`, prints.

main             the entry point of `tt`
commands         the commands
decorators       what every command does first and last
flags_of_fields  flags made of the fields of a dataclass
shared_options   the names of the commands; options and paths that several commands share
config_file      --config FILE.yaml
errors           errors and notices on one line
libraries        libraries imported quietly
"""
