"""Graph building: T, L, G, their composition, and OpenFst files.

The only package that imports FST engines (kaldifst, pynini).
"""
