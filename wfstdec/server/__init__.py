"""The server: streams and files of audio come in by the network, words go out.

    engine.py           one thread that advances all streams in rounds
    stream.py           what a client asks of its stream, and what it sends
    events.py           what the engine says about a stream
    limits.py           what one client may ask of the machine
    service.py          what all handlers share
    app.py              routes, keys, health; running.py: uvicorn, and draining
    transcriptions.py   `POST /v1/audio/transcriptions`, as OpenAI's clients speak it
    listen.py           `WS /v1/listen`, as Deepgram's clients speak it
    page/               the page at `/`

No protocol knows another, and the engine knows none: a protocol reads messages, gives
audio to the engine, and writes events in its own words.
"""
