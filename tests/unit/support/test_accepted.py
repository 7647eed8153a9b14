"""A server that is closed while connections come leaves none of them open."""

import asyncio
import gc
import socket
import warnings


async def test_what_comes_as_a_server_closes_is_closed() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    (listener,) = server.sockets
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    try:
        # Accepted as in the loop's turn that finds them; served in the next one.
        loop = asyncio.get_running_loop()
        loop.call_soon(server.close)
        accepting = loop._selector.get_key(listener.fileno()).data[0]  # type: ignore[attr-defined]
        accepting._run()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for _ in range(5):
                await asyncio.sleep(0)
            gc.collect()
        assert [str(one.message) for one in warned] == []
        for client in clients:
            client.settimeout(5)
            assert client.recv(1) == b""
    finally:
        for client in clients:
            client.close()
