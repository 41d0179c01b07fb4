"""The command line: parses, calls `pipelines` and `model`, prints.

main           the entry point of `tt`
decorators     what every command does first and last
options        options that several commands share
option_fields  options from the fields of a dataclass
config_file    --config FILE.yaml
errors         errors and notices on one line
libraries      libraries imported quietly
paths          paths as users give them
commands       a module a command
"""
