"""How the tests of sources cut and read them."""

from pipelines.pairs.units import cut_source
from pipelines.pairs.work_folder import WorkFolder


def cut(source, tmp_path, *, max_pairs=1000):
    (tmp_path / "work").mkdir(exist_ok=True)
    return list(
        cut_source(
            source,
            order=0,
            is_held_out=False,
            max_pairs=max_pairs,
            work=WorkFolder(str(tmp_path / "work")),
        )
    )


def read(source, tmp_path, *, max_pairs=1000):
    """Reads all rows through units, checking that these are what they say."""
    rows = []
    for index, unit in enumerate(cut(source, tmp_path, max_pairs=max_pairs)):
        assert (unit.index, unit.first_row) == (index, len(rows))
        tables = list(unit.read())
        for table in tables:
            rows += [tuple(row.values()) for row in table.to_pylist()]
        assert len(rows) == unit.first_row + unit.rows
        assert 1 <= unit.rows <= max_pairs
    return rows
