"""A fixture that lets tests share built and traced models."""

import pytest
from trainers import BUILT_MODELS


@pytest.fixture(autouse=True)
def built_models(request):
    """Lend models to a test, unless it uses `monkeypatch` and may patch compiled functions."""
    if "monkeypatch" in request.fixturenames:
        yield
    else:
        with BUILT_MODELS.lend():
            yield
