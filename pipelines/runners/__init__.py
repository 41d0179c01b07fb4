"""Where and how a Beam job runs.

beam_options    Beam's own flags
runner          a pipeline made and run
jobs            jobs of engines, from their settings to the question whether one still runs
remote_jobs     a job's name, its page, and its end by Ctrl-C
workers         what workers of other machines must have and reach
failures        the failure of a job, for the user
foreign_errors  errors of other services in one line
staging         datasets and models copied to a local cache
status_line     how far a run is, in one line
formatting      sizes, times and prices as a user reads them
"""
