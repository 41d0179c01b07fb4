"""Find facts and tables in lists of blocks."""

from tt.model.inspection.blocks import Facts, Table


def facts_of(blocks):
    """Return the values of all facts, by name."""
    return {
        name: value for block in blocks if isinstance(block, Facts) for name, value in block.rows
    }


def table_of(blocks, name):
    """Return the rows of the first table with this column, or [] if there is none."""
    found = [block for block in blocks if isinstance(block, Table) and name in block.header]
    return [list(row) for row in found[0].rows] if found else []
