"""An asyncio service that compares two sequences in Python for each request; one thread's CPU is the limit: python3 scores.py PORT."""
import asyncio, sys

ONE = "ACGTTGCAAGTCCTAGGATCCATTACGGCATCAGTTACGATCGGATTACCAGTTC"
OTHER = "AGGTTCCAAGTACTAGCATCCAATACGGGATCAGTAACGATCCGATTTCCAGTAC"


def distance(one, other):
    """The edit distance, cell by cell: about 3000 cells, some hundreds of microseconds."""
    above = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.received = b""

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            self.received = self.received.partition(b"\r\n\r\n")[2]
            body = b"distance %d" % distance(ONE, OTHER)
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(sys.argv[1]), backlog=256)
    await server.serve_forever()


asyncio.run(main())
