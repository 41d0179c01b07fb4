"""Start a Flink session cluster on this machine: a job manager and task managers on 127.0.0.1.

`deploy/flink/install.sh` installs Flink and its job server into .cache/flink. A folder contains the
logs, and `cluster.json` with the page and the processes. All ports are free ones, so several
clusters can run at the same time. The workers of the task managers run on the Python that started
the cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import java_processes
from java_processes import HOST, free_ports, is_there

FLINK = Path(__file__).parents[2] / ".cache/flink"
_MAIN = "org.apache.flink.runtime"
_START_SECONDS = 90
_STOP_SECONDS = 10
_COMMAND = b"org.apache.flink"

# Java 17 does not open these packages to Flink by itself; Flink's bin/config.sh opens the same.
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent",
           "util.concurrent.atomic", "util.concurrent.locks")  # fmt: skip


def start(folder: Path, *, task_managers: int = 2, slots: int = 1) -> dict[str, Any]:
    """Start a cluster, and wait until all its task managers have registered.

    Args:
      folder: Folder for logs, temporary files and `cluster.json`.
      task_managers: Number of task managers.
      slots: Number of concurrent tasks per task manager.

    Returns:
      The content of `cluster.json`: the page (`url`) and the IDs of the processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rest, rpc = free_ports(2)
    settings = {
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": rest,
        "jobmanager.rpc.address": HOST,
        "jobmanager.rpc.port": rpc,
        "jobmanager.bind-host": HOST,
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "io.tmp.dirs": folder / "tmp",
        "parallelism.default": task_managers * slots,
        # A lost task manager is noticed in seconds, and its tasks go to other task managers.
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 10_000,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 10,
        "restart-strategy.fixed-delay.delay": "1 s",
        # A retry waits for the slots of a new task manager, even long after the cluster's start.
        "resourcemanager.standalone.start-up-time": 86_400_000,
        # Flink's scripts would compute these values: the memory of a task manager by purpose.
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.cpu.cores": slots,
        "taskmanager.memory.task.heap.size": "256m",
        "taskmanager.memory.task.off-heap.size": "64m",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "64m",
        "taskmanager.memory.jvm-overhead.max": "64m",
    }
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    lines = [f"{name}: {value}\n" for name, value in settings.items()]
    (folder / "conf/config.yaml").write_text("".join(lines))
    entry = f"{_MAIN}.entrypoint.StandaloneSessionClusterEntrypoint"
    job_manager = _start_java(entry, folder=folder, log=folder / "job_manager.log")
    _write(
        folder, {"url": f"http://{HOST}:{rest}", "job_manager": job_manager, "task_managers": []}
    )
    for _ in range(task_managers):
        add(folder)
    try:
        return _wait(folder)
    except BaseException:
        stop(folder)
        raise


def add(folder: Path) -> dict[str, Any]:
    """Start another task manager of a cluster, which registers after some seconds.

    Returns:
      The content of `cluster.json`; see `start`.
    """
    cluster = _read(folder)
    log = folder / f"task_manager_{len(cluster['task_managers'])}.log"
    process = _start_java(f"{_MAIN}.taskexecutor.TaskManagerRunner", folder=folder, log=log)
    cluster["task_managers"].append(process)
    _write(folder, cluster)
    return cluster


def _read(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "cluster.json").read_text()))


def _write(folder: Path, cluster: dict[str, Any]) -> None:
    (folder / "cluster.json").write_text(json.dumps(cluster))


def _start_java(main_class: str, *, folder: Path, log: Path) -> int:
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    memory = ["-Xmx384m", "-XX:MaxDirectMemorySize=320m", "-XX:MaxMetaspaceSize=256m"]
    logging = Path(__file__).with_name("flink_session.log4j.properties")
    command = [
        "java", *opens, "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", *memory,
        "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configurationFile={logging}",
        "-cp", f"{FLINK}/pyflink/lib/*", main_class, "--configDir", str(folder / "conf"),
    ]  # fmt: skip
    # Workers are started as `python`, which must be this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PATH": path},
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        )
    return process.pid


def _wait(folder: Path) -> dict[str, Any]:
    """Wait until all task managers of a new cluster have registered."""
    cluster = _read(folder)
    end = time.monotonic() + _START_SECONDS
    processes = [cluster["job_manager"], *cluster["task_managers"]]
    while time.monotonic() < end and all(
        is_there(process, command=_COMMAND, is_new=True) for process in processes
    ):
        try:
            with urllib.request.urlopen(f"{cluster['url']}/overview", timeout=5) as reply:
                if json.load(reply)["taskmanagers"] == len(cluster["task_managers"]):
                    return cluster
        except OSError:
            pass  # the job manager does not listen yet
        time.sleep(0.2)
    sys.exit(f"the cluster has not started. See {folder}/*.log")


def stop(folder: Path) -> None:
    """End the remaining processes of a cluster, and delete their temporary files."""
    cluster = _read(folder)
    processes = [*cluster["task_managers"], cluster["job_manager"]]
    java_processes.end(processes, command=_COMMAND, seconds=_STOP_SECONDS)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "cluster.json").unlink()
