"""Where and how a Beam job runs.

options       the options that say where and on what machines a job runs
beam_options  Beam's own flags
workers       workers that have tt and reach the files of a job
dataflow      settings of a job on Dataflow
flink         settings of a job on Flink, and a Flink cluster's REST interface
flink_server  Beam's job server for Flink, which a terminal's Ctrl-C does not reach
wheel         a wheel of this tt, for workers without an image of it
runner        a pipeline made and run
remote_jobs   the name of a job, and its cancellation by Ctrl-C
job_file      the job of a folder, so that no second one starts
failures      the failure of a job in one line
transforms    check_worker, the first step of every job; Spread
staging       datasets and models copied to a local cache
status_line   the progress of a run in one line
formatting    sizes, times and prices as a user reads them
"""
