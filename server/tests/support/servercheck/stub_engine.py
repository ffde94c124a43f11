"""A stand-in for an engine process where only the front is looked at: answers by the path, and can go at any byte."""

import asyncio
import os
import sys

JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
is_well = True


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global is_well
    head = await reader.readuntil(b"\r\n\r\n")
    path = head.split()[1].decode()
    if path == "/health":
        writer.write(b"HTTP/1.1 %d .\r\ncontent-length: 0\r\n\r\n" % (200 if is_well else 503))
    elif path == "/fail":
        is_well = False
        writer.write(JSON % (4, b"null"))
    elif path == "/die/whole":
        writer.write(JSON % (20, b'{"half": '))
    elif path == "/die/events":
        writer.write(EVENTS + chunk(b'data: {"n": 1}\n\ndata: {"n"'))
    elif path == "/wait":
        writer.write(EVENTS + chunk(b"data: 1\n\n"))
        await writer.drain()
        await reader.read()
        print("the client has left", flush=True)
    else:
        told = b'"%s"' % head.replace(b"\r\n", b"|")
        writer.write(JSON % (len(told), told))
    await writer.drain()
    if path.startswith("/die"):
        os._exit(7)
    writer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def main() -> None:
    server = await asyncio.start_unix_server(answer, sys.stdin.readline().strip())
    async with server:
        await server.serve_forever()


asyncio.run(main())
