"""Threads that compute in Python itself: python3 gil.py PORT."""
import json, socketserver, sys


def primes(below):
    return [n for n in range(2, below) if all(n % d for d in range(2, int(n ** 0.5) + 1))]


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line:
                return
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            body = json.dumps(primes(1500)).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
