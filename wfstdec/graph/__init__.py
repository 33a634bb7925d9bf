"""The search graph: arcs, tables, and all of it packed in arrays."""
