from wfstdec.batch.ray.jobs import RayOptions as RayOptions
from wfstdec.batch.ray.jobs import RowsSummary as RowsSummary
from wfstdec.batch.ray.jobs import run_rows as run_rows
from wfstdec.batch.ray.rows import DecodeRows as DecodeRows
from wfstdec.batch.ray.rows import RowWorker as RowWorker
from wfstdec.batch.ray.rows import TranscribeRows as TranscribeRows
from wfstdec.batch.ray.rows import are_rows as are_rows
from wfstdec.batch.ray.rows import logprob_rows as logprob_rows
from wfstdec.batch.ray.rows import recording_rows as recording_rows
from wfstdec.batch.ray.rows import result_schema as result_schema

__all__: list[str]
