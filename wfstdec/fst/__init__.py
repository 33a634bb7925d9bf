"""Graph building, T o min(det(L o G)), and OpenFst files.

tlg             build_graph: from text files to a PackedGraph, through all below
labels          LabelSpace: which numbers tokens, words, `#0 #1 ...` and repeats have
grammar_fst     G from an ARPA model               grammar_user    G from an acceptor
lexicon_fst     L from pronunciations              topology        T by its name
compose         L o G, T o LG
engine          det(...), by kaldifst or pynini: the only importer of an FST library
minimize        min(...)
build_log       what is logged of each step
arrays          FSTs made from arcs in any order

openfst_io      graphs from files of other tools and for them, over openfst_binary
                and att_text
"""
