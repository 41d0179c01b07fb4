"""The command line: parses, calls `pipelines` and `model`, prints."""
