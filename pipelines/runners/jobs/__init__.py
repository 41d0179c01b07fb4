"""Jobs of engines: how they are submitted, whether they still run, and what their workers are.

flink_cluster  a Flink cluster, asked over its REST interface
flink_server   Beam's job server for Flink, out of reach of a terminal's Ctrl-C
job_states     a job, and its runner asked whether it still runs
job_file       the job of a folder, noted there
transforms     CheckWorker, the first step of every job; Spread
"""
