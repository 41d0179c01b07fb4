"""Fixtures for translation jobs: texts that fail, and tables of Delta Lake and Iceberg."""

import pytest
from fakes import crash_at, fail_at


@pytest.fixture(autouse=True)
def _nothing_fails():
    yield
    crash_at.clear()
    fail_at.clear()


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """Return an Iceberg catalog named "lake" in `tmp_path / "lake"`."""
    from lake_tables import iceberg_catalog

    return iceberg_catalog(tmp_path / "lake", monkeypatch)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path, catalog):
    """Return both kinds of tables with one interface."""
    from lake_tables import LAKE

    return LAKE[request.param](tmp_path / "lake", catalog)
