"""A small service for the tests of `weir load URL`: says what it was asked, answers any status, and can be slow.

Prints its port. GET /seen has the last requests; /status/NNN answers that status; /slow/MS waits; anything else answers a JSON
object with the request.
"""

import json
import sys
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEEN = deque(maxlen=2000)


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("latin-1"),
        }
        status, said = 200, asked
        parts = self.path.split("?")[0].split("/")
        if parts[1] == "seen":
            said = list(SEEN)
        else:
            SEEN.append(asked)
        if parts[1] == "status":
            status = int(parts[2])
        if parts[1] == "slow":
            time.sleep(float(parts[2]) / 1000)
        text = b"" if status == 204 else json.dumps(said).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A client that leaves is none of its business."""


server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Service)
print(server.server_address[1], flush=True)
server.serve_forever()
