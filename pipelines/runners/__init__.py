"""Run Beam jobs on this machine, on Dataflow, on Flink, or on another runner.

options       the options for the runner and the machines of a job
beam_options  Beam's own flags
workers       check that workers have tt and can reach the files of a job
dataflow      settings of a job on Dataflow
flink         settings of a job on Flink, and a Flink cluster's REST interface
flink_server  Beam's job server for Flink, in a process that Ctrl-C does not reach
wheel         a wheel of this checkout, for workers without an image that contains tt
runner        make and run a pipeline
remote_jobs   describe, await and cancel a job that a runner has accepted
job_file      store the job of a folder in a file, so that no second job starts
failures      explain the failure of a job in one line
transforms    check_worker, the first step of every job, and Spread
staging       copy datasets and models to a local cache
status_line   the progress of a run in one line
formatting    sizes, times and prices as text for the user
"""
