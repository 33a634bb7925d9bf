from wfstdec.lattice.arrays import Lattice as Lattice
from wfstdec.lattice.arrays import LatticeScales as LatticeScales
from wfstdec.lattice.compact import CompactLattice as CompactLattice
from wfstdec.lattice.file import LatticeFile as LatticeFile
from wfstdec.lattice.file import LatticeWriter as LatticeWriter
from wfstdec.lattice.file import open_lattices as open_lattices
from wfstdec.lattice.file import save_lattices as save_lattices
from wfstdec.lattice.mbr import minimum_bayes_risk as minimum_bayes_risk
from wfstdec.lattice.mbr import posteriors as posteriors
from wfstdec.lattice.mbr import word_confidences as word_confidences
from wfstdec.lattice.nbest import nbest_paths as nbest_paths
from wfstdec.lattice.rescoring import rescored as rescored
from wfstdec.lattice.rescoring import weighed as weighed

__all__: list[str]
