"""Graph building, T o min(det(L o G)), and OpenFst files; `tlg.build_graph` does it."""
