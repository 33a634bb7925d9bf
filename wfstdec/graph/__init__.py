"""Search graphs: arcs, tables, and their packed arrays."""
