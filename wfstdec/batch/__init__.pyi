from wfstdec.batch.aligning import AlignmentSummary as AlignmentSummary
from wfstdec.batch.aligning import align_all as align_all
from wfstdec.batch.aligning import align_file as align_file
from wfstdec.batch.decoding import BoostLists as BoostLists
from wfstdec.batch.decoding import LatticeReading as LatticeReading
from wfstdec.batch.decoding import RescoringSummary as RescoringSummary
from wfstdec.batch.decoding import Summary as Summary
from wfstdec.batch.decoding import batches as batches
from wfstdec.batch.decoding import decode_all as decode_all
from wfstdec.batch.decoding import decode_file as decode_file
from wfstdec.batch.decoding import rescore_file as rescore_file

__all__: list[str]
