"""The outbox of a stream: order, the newest interim, and its end."""

import asyncio
import random

from wfstdec.server.stream import Outbox


def taken(outbox):
    async def take():
        found = []
        while len(outbox):
            found.append(await outbox.next())
        return found

    return asyncio.run(take())


def test_only_the_newest_interim_is_sent():
    outbox = Outbox()
    outbox.send("final 1")
    outbox.send("a", interim_of=0)
    outbox.send("a b", interim_of=0)
    outbox.send("speech started")
    outbox.send("a b c", interim_of=0)
    assert len(outbox) == 3
    assert taken(outbox) == ["final 1", "speech started", "a b c"]


def test_streams_have_an_interim_each():
    outbox = Outbox()
    outbox.send("a", interim_of=0)
    outbox.send("b", interim_of=1)
    outbox.send("a c", interim_of=0)
    outbox.drop_interim(2)
    assert taken(outbox) == ["b", "a c"]


def test_who_waits_is_woken_and_the_end_comes_behind_all():
    async def run():
        outbox, found = Outbox(), []

        async def read():
            while (one := await outbox.next()) is not None:
                found.append(one)

        reader = asyncio.create_task(read())
        for number in range(3):
            await asyncio.sleep(0)
            outbox.send(number)
        outbox.send("last", interim_of=0)
        outbox.close()
        outbox.send("too late")
        await asyncio.wait_for(reader, 5)
        return found

    assert asyncio.run(run()) == [0, 1, 2, "last"]


def test_any_order_of_calls_keeps_finals_in_order():
    random.seed(0)
    for _ in range(200):
        outbox, given, expected = Outbox(), [], []
        interim = None
        for number in range(random.randrange(30)):
            if random.random() < 0.5:
                if interim is not None:
                    expected.remove(interim)
                interim = ("interim", number)
                outbox.send(interim, interim_of=0)
                expected.append(interim)
            else:
                if random.random() < 0.5 and interim is not None:
                    expected.remove(interim)
                    interim = None
                    outbox.drop_interim(0)
                outbox.send(("final", number))
                expected.append(("final", number))
            if random.random() < 0.2 and expected:
                [one] = [asyncio.run(outbox.next())]
                given.append(one)
                assert one == expected.pop(0)
                interim = None if one == interim else interim
        assert taken(outbox) == expected
