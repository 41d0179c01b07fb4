"""The files in deploy/, as far as tests can check them without building an image."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import apache_beam
import pytest
import yaml
from google.cloud.dataflow_v1beta3.types import TemplateMetadata

from tt.cli.main import load_command
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.streams.plan import MOST_SECONDS

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text("utf-8")
TEMPLATE = (ROOT / "deploy/flex/Dockerfile").read_text("utf-8")
JOBS = ("preprocess", "translate-batch")


def test_the_image_has_the_locked_version_of_beam():
    [version] = re.findall(r"^FROM apache/beam_python\$\{PYTHON\}_sdk:(\S+)$", DOCKERFILE, re.M)
    assert version == apache_beam.__version__


def test_copied_files_are_sent_to_the_build():
    lines = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE + TEMPLATE, re.M)
    copied = [name.strip("./") for line in lines for name in line.split()]
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert sorted(copied) == sorted(sent)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {"cli", "model", "pipelines"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_locks_for_images_exist():
    assert "ARG LOCK=requirements/runtime.lock\n" in DOCKERFILE
    locks = re.findall(r"--build-arg LOCK=(\S+)", DOCKERFILE)
    assert locks == ["requirements/gpu.lock"]
    gpu, runtime, development = (
        dict(re.findall(r"^(\S+)==(\S+)", (ROOT / f"requirements/{name}.lock").read_text(), re.M))
        for name in ("gpu", "runtime", "dev")
    )
    assert "nvidia-cudnn-cu12" in gpu
    assert runtime.items() <= gpu.items()
    # `make test-gpu` installs both into one environment.
    assert all(version == gpu.get(name, version) for name, version in development.items())


@pytest.mark.parametrize("job", JOBS)
def test_the_api_and_the_command_accept_the_parameters_of_a_template(job):
    text = (ROOT / f"deploy/flex/{job}.json").read_text("utf-8")
    metadata = TemplateMetadata.from_json(text, ignore_unknown_fields=False)
    assert metadata.name == f"tt {job}"
    command = load_command(job)
    flags = {option for each in command.params for option in each.opts}
    for parameter in metadata.parameters:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", parameter.name)
        assert parameter.label
        assert parameter.help_text.endswith(".")
        for regex in parameter.regexes:
            re.compile(regex)
        if parameter.name in ("corpora", "input"):
            assert not parameter.is_optional
        else:
            assert f"--{parameter.name.replace('_', '-')}" in flags
    required = {each.name for each in metadata.parameters if not each.is_optional}
    assert required == {
        "preprocess": {"corpora", "output"}, "translate-batch": {"input", "output", "model"},
    }[job]  # fmt: skip


def test_the_launcher_passes_parameters_to_tt_and_other_flags_to_beam():
    launch = runpy.run_path(str(ROOT / "deploy/flex/launch.py"), run_name="launch")
    command = launch["command_of"](
        "translate-batch",
        ["--input=gs://b/1 gs://b/2", "--output=gs://b/o", "--model=gs://b/m", "--beam_size=2",
         "--text_column=title body", "--runner=DataflowRunner", "--template_location=gs://b/t"],
    )  # fmt: skip
    assert command == [
        "translate-batch", "gs://b/1", "gs://b/2", "--output=gs://b/o", "--model=gs://b/m",
        "--beam-size=2", "--text-column=title", "--text-column=body", "--",
        "--runner=DataflowRunner", "--template_location=gs://b/t",
    ]  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_the_launcher_keeps_spaces_in_every_value(job):
    value = "--output=it's, = gs://b/my folder"
    launch = runpy.run_path(str(ROOT / "deploy/flex/launch.py"), run_name="launch")
    command = load_command(job)
    first = {"preprocess": "corpora", "translate-batch": "input"}[job]
    several = {each.name for each in command.params if getattr(each, "multiple", False)}
    numbers = {"vocabulary_size", "shards", "beam_size", "unit_rows", "max_failed"}
    names = [name for name in launch["read_parameters"](job) if name not in {first, *numbers}]
    assert len(names) >= 5
    arguments = [f'--{name}="{value}" b' if name in several else f"--{name}={value}"
                 for name in names]  # fmt: skip
    begin, *rest = launch["command_of"](job, ["--" + first + '=a "gs://b/c d"', *arguments])
    with command.make_context(begin, rest[: rest.index("--")], resilient_parsing=True) as context:
        found = context.params
    assert list(found[first]) == ["a", "gs://b/c d"]
    for name in names:
        assert found[name] == ([value, "b"] if name in several else value)


def test_the_image_checks_the_imports_of_all_jobs(tmp_path):
    [imports] = re.findall(r'^RUN cd / && python -c "(import .*)"$', DOCKERFILE, re.M)
    subprocess.run([sys.executable, "-c", imports], cwd=tmp_path, check=True)
    modules = imports.removeprefix("import ").split(", ")
    steps = {
        ".".join(("tt", *path.relative_to(ROOT).with_suffix("").parts))
        for room in ("preprocess", "translate")
        for path in (ROOT / "pipelines" / room).glob("*.py")
        if "(beam.DoFn)" in path.read_text("utf-8")
    }
    missing = (
        f"import sys, {', '.join(modules)}; "
        f"print([name for name in {sorted(steps)} if name not in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", missing], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert found.stdout.splitlines()[-1] == "[]"
    assert len(steps) >= 2


def test_the_kubernetes_example_fits_the_command():
    """The manifests fit the command and its flags, and the time of a batch."""
    text = (ROOT / "deploy/kubernetes/stream.yaml").read_text("utf-8")
    deployment, budget = yaml.safe_load_all(text)
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (budget["apiVersion"], budget["kind"]) == ("policy/v1", "PodDisruptionBudget")
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    pod = template["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 2 * MOST_SECONDS
    [container] = pod["containers"]
    assert container["command"] == ["tt", "translate-stream"]
    flags = {option for each in load_command("translate-stream").params for option in each.opts}
    given = dict(each.split("=", 1) for each in container["args"] if each.startswith("--"))
    assert given.keys() <= flags
    [port] = [each["containerPort"] for each in container["ports"]]
    assert given["--metrics-port"] == str(port)
    assert given["--metrics-address"] == "0.0.0.0"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in pod["volumes"]}
    assert given["--kafka-config"].startswith(mounts["kafka"])
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    StreamOptions(
        input=container["args"][0], output=container["args"][1], group=given["--group"],
        dead_letter=given["--dead-letter"], metrics_port=port,
    )  # fmt: skip


def test_the_job_on_a_gpu_makes_a_target_of_the_makefile():
    job = json.loads((ROOT / "deploy/gpu/test.json").read_text("utf-8"))
    [task] = [group["taskSpec"] for group in job["taskGroups"]]
    script = task["runnables"][0]["script"]["text"]
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    [target] = re.findall(r"^make (\S+) PYTHON=", script, re.M)
    assert f"\n{target}: $(GPU)/.installed\n" in (ROOT / "Makefile").read_text("utf-8")
    assert f"{task['volumes'][0]['mountPath']}/tt.tar.gz" in script
