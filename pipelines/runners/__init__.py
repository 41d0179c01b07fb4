"""Where and how a Beam job runs.

beam_options    Beam's own flags
runner          a pipeline made and run
remote_jobs     a job's name, its page, and its end by Ctrl-C
workers         what workers of other machines must have and reach
failures        the failure of a job, for the user
foreign_errors  errors of other services in one line
staging         datasets and models copied to a local cache
status_line     how far a run is, in one line
formatting      sizes, times and prices as a user reads them
machines        cores of Google's machine types, and accelerators
flink_cluster   a Flink cluster, asked over its REST interface
flink_server    Beam's job server for Flink, out of reach of a terminal's Ctrl-C
job_states      a job, and its runner asked whether it still runs
job_file        the job of a folder, noted there
transforms      CheckWorker, the first step of every job; Spread
options         the flags that say where and on what a job runs
checks          what is known before a job is sent
dataflow        what a job of tt wants of Dataflow
flink           what a job of tt wants of Flink
wheel           this very tt and its requirements, for workers without an image of it
"""
