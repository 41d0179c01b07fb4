"""Cut and read sources, for their tests."""

import contextlib
import uuid

from tt.pipelines.preprocess.corpora import SourceList
from tt.pipelines.preprocess.units import cut_sources
from tt.pipelines.preprocess.work_folder import WorkFolder


def cut(source, tmp_path, *, max_pairs=1000):
    (tmp_path / "work").mkdir(parents=True, exist_ok=True)
    work = WorkFolder(str(tmp_path / "work"))
    return list(
        cut_sources(
            [(0, source)],
            is_held_out=False,
            max_pairs=max_pairs,
            work=work,
            unchanged=contextlib.nullcontext,
        )
    )


def list_sources(sources, folder):
    """Write the list of sources to a new file."""
    path = folder / f"sources-{uuid.uuid4().hex}.jsonl"
    identities = [source.identity() for source in sources]
    path.write_text(SourceList.text(sources, identities=identities, groups=range(len(sources))))
    return SourceList(str(path))


def rows_of(unit, sources=None):
    """Read the rows of a unit; only parts without a chunk need the sources."""
    return [row for part in unit.read(sources) for row in part.table.to_pylist()]


def read(source, tmp_path, *, max_pairs=1000):
    """Read all rows through units, and check the descriptions of the units."""
    rows = []
    units = cut(source, tmp_path, max_pairs=max_pairs)
    sources = list_sources([source], tmp_path)
    for index, unit in enumerate(units):
        assert unit.index == index
        assert [(part.order, part.first_row) for part in unit.parts] == [(0, len(rows))]
        for part in unit.read(sources):
            assert (part.order, part.first_row) == (0, len(rows))
            rows += [tuple(row.values()) for row in part.table.to_pylist()]
        assert len(rows) == unit.parts[0].first_row + unit.rows
        assert 1 <= unit.rows <= max_pairs
    return rows
