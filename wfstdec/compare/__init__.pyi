from wfstdec.compare.comparison import Comparison as Comparison
from wfstdec.compare.comparison import Point as Point
from wfstdec.compare.comparison import load_comparison as load_comparison
from wfstdec.compare.comparison import table as table
from wfstdec.compare.models import Models as Models
from wfstdec.compare.plotting import plot as plot
from wfstdec.compare.plotting import plot_reliability as plot_reliability
from wfstdec.compare.plotting import plot_tuning as plot_tuning
from wfstdec.compare.quality import judge_all as judge_all
from wfstdec.compare.quality import score_confidences as score_confidences
from wfstdec.compare.quality import tune_posterior_scale as tune_posterior_scale
from wfstdec.compare.running import run as run
from wfstdec.compare.speech import Speech as Speech
from wfstdec.compare.speech import encode_speech as encode_speech
from wfstdec.compare.speech import read_speech as read_speech
from wfstdec.compare.tuning import parse_grid as parse_grid
from wfstdec.compare.tuning import tune as tune

__all__: list[str]
