"""Damaged JSON files of a run folder: each gives one line in the words of a user."""

from __future__ import annotations

import json
import re

import pytest
from trainers import make_trainer

from tt.model.errors import UserError
from tt.model.inspection.run import RunSummary, run_sections
from tt.model.training.exporting import AverageRequest, ExportRequest

FILES = (
    "config.json", "checkpoints/checkpoints.json", "model/config.json", "best_model/config.json",
    "vocabulary/vocabulary.json", "train.jsonl",
)  # fmt: skip
# Words and values of Python that no message for a user contains.
PYTHON = re.compile(r"Error|__|argument|NoneType|object is|attribute|<class|\{'|\['|dict\b")


def damaged_values(values):
    """Return damaged variants of a JSON object, by the kind of damage."""
    others = [[1], 1.5, "x", {"a": 1}, None, True]
    for name, value in values.items():
        yield f"no {name}", {k: v for k, v in values.items() if k != name}
        for other in others:
            if type(other) is not type(value):
                yield f"{name}={other}", {**values, name: other}
        if isinstance(value, dict):
            for inner, changed in list(damaged_values(value))[::5]:
                yield f"{name}.{inner}", {**values, name: changed}
    yield "another key", {**values, "another": {"key": 1}}


def damaged_texts(text):
    """Return damaged variants of a file; of a log, the second line is damaged."""
    first, rest = "", ""
    if "\n{" in text:
        first, text, rest = text.splitlines(keepends=True)[0], *text.split("\n", 2)[1:]
    values = json.loads(text)
    yield "empty", f"{first}\n{rest}" if first else ""
    yield "truncated", f"{first}{text[: len(text) // 2]}\n{rest}"
    for name, damaged in [("a list", [values]), ("a number", 5), *damaged_values(values)]:
        yield name, f"{first}{json.dumps(damaged)}\n{rest}"


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_gives_one_line_with_a_fix(name, finish_run, toy_dataset, tmp_path):
    run = finish_run(tmp_path / "run")
    whole = (run / name).read_bytes()

    def resume():
        make_trainer(toy_dataset, run).close()

    actions = {
        "show": lambda: run_sections(RunSummary(run)),
        "average": AverageRequest(
            run=str(run), output=str(tmp_path / "mean"), overwrite=True
        ).write,
        "export": ExportRequest(
            model=str(run), output=str(tmp_path / "export"), checkpoint="best", overwrite=True
        ).write,
        "resume": resume,
    }
    refused = set()
    for number, (damage, text) in enumerate(damaged_texts(whole.decode())):
        for action, act in actions.items():
            if action != "show" and number % 20 > 1:
                continue  # the other actions load a model, which takes longer
            (run / name).write_text(text)
            try:
                act()
            except UserError as error:
                message = str(error)
                refused.add(damage)
                assert len(message.splitlines()) == 1, (damage, action)
                assert str(run) in message, (damage, action, message)
                assert not PYTHON.search(message.replace(str(run), "")), (damage, action, message)
                assert re.search(
                    r"\. (Delete|Restore|Choose|Copy|Repeat|Make|Complete|Set)", message
                ), (damage, action, message)
            (run / name).write_bytes(whole)
    assert {"empty", "truncated", "a list", "a number"} <= refused or name.startswith("best_model")
