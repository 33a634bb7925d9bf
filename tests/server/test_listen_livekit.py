"""`WS /v1/listen` with LiveKit's plug-in for Deepgram, unmodified: opt-in, 335 MB.

pip install livekit-plugins-deepgram
"""

import asyncio
import json

import numpy as np
import pytest
from row_streams import bytes_of
from served import serving

pytest.importorskip("livekit.plugins.deepgram")

import aiohttp
from livekit import rtc
from livekit.agents.stt import SpeechEventType
from livekit.plugins import deepgram
from websockets.asyncio.client import connect

from wfstdec.server.limits import Limits
from wfstdec.server.service import Service


@pytest.fixture(scope="module")
def server(encoder, decoder):
    with serving(Service(encoder, decoder, Limits(), key="secret")) as server:
        yield server


def test_a_plug_ins_stream_has_each_word_once(server, speech):
    rows = speech(10, 2)

    async def run():
        async with aiohttp.ClientSession() as session:
            stt = deepgram.STT(
                base_url=f"{server.url}/v1/listen",
                api_key="secret",
                model="nova-3",
                keyterm=["bartley", "new york"],
                interim_results=True,
                http_session=session,
            )
            stream, found = stt.stream(), []

            async def read():
                async for event in stream:
                    found.append(event)

            reader = asyncio.create_task(read())
            for part in np.array_split(rows, 50):
                data = bytes_of(part)
                stream.push_frame(rtc.AudioFrame(data, 16000, 1, len(data) // 2))
                await asyncio.sleep(0.01)
            stream.flush()
            stream.end_input()
            await asyncio.wait_for(reader, 30)
            await stream.aclose()
        return found

    async def plainly():
        """Messages to a plain client with the plug-in's own endpointing."""
        query = "encoding=linear16&sample_rate=16000&endpointing=25&keyterm=bartley"
        url = f"{server.ws}/v1/listen?{query}&keyterm=new%20york"
        headers = {"Authorization": "Token secret"}
        async with connect(url, additional_headers=headers) as socket:
            await socket.send(bytes_of(rows))
            await socket.send('{"type": "CloseStream"}')
            said = [json.loads(text) async for text in socket]
        finals = [one for one in said if one.get("is_final")]
        texts = [one["channel"]["alternatives"][0]["transcript"] for one in finals]
        return " ".join(texts).split()

    found = asyncio.run(run())
    kinds = [event.type for event in found]
    assert SpeechEventType.INTERIM_TRANSCRIPT in kinds
    assert SpeechEventType.END_OF_SPEECH in kinds
    finals = [e for e in found if e.type == SpeechEventType.FINAL_TRANSCRIPT]
    words = " ".join(event.alternatives[0].text for event in finals).split()
    starts = [event.alternatives[0].start_time for event in finals]
    assert starts == sorted(starts) and len(words) > 10
    assert words == asyncio.run(plainly())
