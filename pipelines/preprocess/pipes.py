"""Read the pipes among the corpora before the steps run, because only then their size is known."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tt.model.storage import listing
from tt.pipelines.preprocess.plan import PreprocessPlan
from tt.pipelines.preprocess.sizes import plan_sizes, unit_pairs_of
from tt.pipelines.preprocess.sources import FileSource
from tt.pipelines.preprocess.units import cut_sources


def read_pipes(plan: PreprocessPlan, report: Callable[[str], object]) -> PreprocessPlan:
    """Write the chunks of all pipes; return the plan with the sizes that fit their texts.

    The first step of the job finds these chunks. Without the size of its text, a corpus would have
    a single bucket, which a worker must hold in memory.

    Args:
      plan: The plan, whose work folder exists.
      report: Receives a line for each pipe.

    Raises:
      UserError: A pipe or a file that is read with a pipe is damaged.
    """
    pipes = [
        path
        for source in plan.sources
        for path in (source.paths() if isinstance(source, FileSource) else ())
        if listing.is_pipe_or_device(path)
    ]
    if not pipes:
        return plan
    text_bytes = collections.Counter(
        {order: source.text_bytes() for order, source in enumerate(plan.sources)}
    )
    for orders in plan.source_list.groups():
        planned = plan.source_list.files(orders)
        found = [file["path"] for file in planned if file["path"] in pipes]
        for path in found:
            report(f"reading the pipe {path}; this waits until its writer has closed it")
        units = cut_sources(
            [(order, plan.sources[order]) for order in orders],
            is_held_out=orders.start >= plan.held_out_from,
            max_pairs=plan.unit_pairs,
            work=plan.work,
            unchanged=functools.partial(listing.unchanged, planned),
            grow=unit_pairs_of,
            is_repeatable=False,
        )
        for unit in units if found else ():
            for rows in unit.read(plan.source_list) if unit.chunk else ():
                text_bytes[rows.order] += _count_bytes(rows.table)
    held_out = sum(text_bytes[order] for order in range(plan.held_out_from, plan.source_count))
    sizes = plan_sizes(text_bytes.total() - held_out, held_out, options=plan.options)
    return dataclasses.replace(plan, **sizes)


def _count_bytes(table: pa.Table) -> int:
    """Return the bytes of rows in a text file, in which a character follows each text."""
    lengths = (pc.sum(pc.binary_length(table[side])) for side in ("source", "target"))
    return sum(int(length.as_py() or 0) for length in lengths) + 2 * int(table.num_rows)
