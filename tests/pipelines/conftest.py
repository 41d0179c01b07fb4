"""Reuse Beam's local runner between the tests in this folder, which halves their time."""

import pytest
import quick_beam

quick_beam.remember()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """Return the folder of a small model with random weights, in a folder like that of a run."""
    from models import write_model

    return write_model(tmp_path_factory.mktemp("random"))
