"""What the tests of this folder share: models that were built and traced before."""

import pytest
from trainers import BUILT_MODELS


@pytest.fixture(autouse=True)
def built_models(request):
    """Lends models to a test, unless it may patch what is compiled."""
    if "monkeypatch" in request.fixturenames:
        yield
    else:
        with BUILT_MODELS.lend():
            yield
