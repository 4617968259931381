"""A journal to which each request appends and waits until it is on disk: python3 fsync.py PORT."""
import os, sys, tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Without a name: nothing is left behind when this is killed.
file = tempfile.TemporaryFile(dir=".")
journal = file.fileno()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        os.write(journal, self.path.encode().ljust(200) + b"\n")
        os.fsync(journal)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
