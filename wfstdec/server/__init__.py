"""HTTP, WebSocket and TCP server: streams and files of audio in, words out.

    limits.py           limits of a client; errors of requests
    stream.py           stream of a client, and its events
    engine.py           one thread that advances all streams in rounds
    service.py          model, engine, limits and jobs, shared by all handlers
    shared.py           counts of all processes, for limits and metrics
    processes.py        worker processes, forked from one with the decoder
    connection.py       messages of a client within the limits, and its streams
    openai.py           `POST /v1/audio/transcriptions` (OpenAI)
    realtime.py         `WS /v1/realtime` (OpenAI)
    prompt.py           words of OpenAI's `prompt` that become boosts
    deepgram.py         `WS /v1/listen` (Deepgram)
    deepgram_files.py   `POST /v1/listen` (Deepgram)
    wyoming.py          Wyoming over TCP (Home Assistant)
    readable.py         numbers, punctuation and capitals for clients
    app.py              all routes, the page at `/`, keys, origins, the log
    uvicorn_server.py   uvicorn: handshakes, slow clients, draining

Protocols are independent of each other, and the engine of all of them: a protocol reads
messages, passes audio to the engine, and writes its events.
"""
