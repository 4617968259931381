"""An asyncio server: python3 loop.py LIMIT PORT, with LIMIT one of timer (each request takes 40 ms), semaphore (three at once, for 20 ms)."""
import asyncio, sys

limit, port = sys.argv[1], int(sys.argv[2])


async def serve(reader, writer):
    while line := await reader.readline():
        while line.strip():
            line = await reader.readline()
        if limit == "timer":
            await asyncio.sleep(0.04)
        else:
            async with places:
                await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
    writer.close()


async def main():
    global places
    places = asyncio.Semaphore(3)
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=128)
    await server.serve_forever()


asyncio.run(main())
