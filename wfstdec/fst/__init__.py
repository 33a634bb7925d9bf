"""Graph building, T o min(det(L o G)), in `tlg.build_graph`; OpenFst files."""
