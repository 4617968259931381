"""A thread for each connection, and one ledger file that each request locks (flock, as PHP does with a session) for the 8 ms of its booking; the file's lock is the limit: ledger PORT."""
import fcntl
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE = tempfile.TemporaryFile()
PATH = f"/proc/self/fd/{FILE.fileno()}"


def book():
    """Whoever has the file locked books alone; nothing is computed or written meanwhile."""
    with open(PATH, "w") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        time.sleep(0.008)
        fcntl.flock(ledger, fcntl.LOCK_UN)


class Clerk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write for head and body

    def do_GET(self):
        book()
        body = b"booked\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[-1])), Clerk).serve_forever()
