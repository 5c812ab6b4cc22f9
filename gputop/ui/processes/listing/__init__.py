"""From a snapshot to the rows of the process table: order, tree, groups, filter. Knows no widget."""
