"""Makes the tests in this folder faster."""

import pytest
import quick_beam

quick_beam.remember()


@pytest.fixture(autouse=True)
def _eager(eager):
    """Trace no function of TensorFlow: other tests compare the results of compiled functions."""
