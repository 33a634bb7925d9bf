"""The server: streams and files of audio come in by the network, words go out.

    limits.py           what one client may ask of the machine; errors
    stream.py           the stream of a client, and the events of it
    engine.py           one thread that advances all streams in rounds
    service.py          model, engine, limits and jobs, which all handlers share
    shared.py           counts of all processes, for limits and metrics
    processes.py        processes that are forked off one with the decoder
    connection.py       a client's messages, held to the limits, and its streams
    openai.py           `POST /v1/audio/transcriptions`, as OpenAI's clients use it
    realtime.py         `WS /v1/realtime`, likewise
    prompt.py           words of OpenAI's `prompt` that become boosts
    deepgram.py         `WS /v1/listen`, as Deepgram's clients use it
    deepgram_files.py   `POST /v1/listen`, likewise
    wyoming.py          Wyoming over TCP, as Home Assistant uses it
    readable.py         numbers, punctuation and capitals for clients
    app.py              all routes, the page at `/`, keys, origins, the log
    uvicorn_server.py   uvicorn: handshakes, slow clients, draining

No protocol knows another, and the engine knows none: a protocol reads messages, gives
audio to the engine, and writes events in its own words.
"""
