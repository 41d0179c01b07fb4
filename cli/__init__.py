"""The command line: parses, calls `pipelines` and `model`, prints.

main             the entry point of `tt`
command_names    the commands by name, in groups
commands         a module a command
decorators       what every command does first and last
flags_of_fields  flags made of the fields of a dataclass
shared_options   options that several commands share
config_file      --config FILE.yaml
errors           errors and notices on one line
libraries        libraries imported quietly
paths            paths as users give them
training_lines   the reports of a training as lines
"""
