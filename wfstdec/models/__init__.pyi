from wfstdec.models.attention import HfAttentionModel as HfAttentionModel
from wfstdec.models.encoder import Encoder as Encoder
from wfstdec.models.encoder import EncoderSpec as EncoderSpec
from wfstdec.models.encoder import StreamingEncoder as StreamingEncoder
from wfstdec.models.encoder import Windowed as Windowed
from wfstdec.models.loading import KINDS as KINDS
from wfstdec.models.loading import MappedTokens as MappedTokens
from wfstdec.models.loading import load_model as load_model
