"""The parser of subtitles, which the kept run stands on."""

import pytest

from wfstdec.io.subtitles import srt_text
from wfstdec.search.hypothesis import Word

pytest.importorskip("soundfile")
from tools.bench.transcribe import check_subtitles  # noqa: E402


def test_subtitles_are_read_strictly():
    words = [Word(f"w{i}", i, i + 0.5, i, i + 1) for i in range(4000)]
    text = srt_text(words)
    assert check_subtitles(text, 4000.0) == [word.text for word in words]
    first, second, *_ = text.split("\n\n")
    for bad in (
        text.replace(",", ".", 1),
        f"{second}\n\n{first}\n\n",
        text.replace("\n2\n", "\n3\n", 1),
        text + "more",
    ):
        with pytest.raises(SystemExit, match="cue"):
            check_subtitles(bad, 4000.0)
    with pytest.raises(SystemExit, match="cue"):
        check_subtitles(text, 3000.0)
