"""The log's socket, crowded by connections that say nothing."""

from __future__ import annotations

import asyncio

from controlplane.door.receive import CONNECTIONS_MAX, Receiver


def test_silent_connections_are_bounded_and_the_one_that_speaks_is_kept() -> None:
    async def story() -> tuple[list[bytes], int]:
        lines: list[bytes] = []
        receiver = Receiver(lines.append)
        port = await receiver.open("127.0.0.1", 0)
        _, ring = await asyncio.open_connection("127.0.0.1", port)
        crowd = []
        for number in range(3 * CONNECTIONS_MAX):
            crowd.append(await asyncio.open_connection("127.0.0.1", port))
            ring.write(b"line %d\n" % number)
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.2)
        gone = sum(reader.at_eof() or reader.exception() is not None for reader, _ in crowd)
        for _, writer in crowd:
            writer.close()
        ring.close()
        await receiver.close()
        return lines, gone

    lines, gone = asyncio.run(story())
    assert len(lines) == 3 * CONNECTIONS_MAX
    assert gone >= 2 * CONNECTIONS_MAX
