"""A thread for each connection, and three handles to a catalogue of which each look-up takes one for 28 ms; these three places are the limit: python3 library.py PORT."""
import queue
import socketserver
import sys
import time


class Handle:
    """Stands for a connection to a database that has its answer after 28 ms; nothing is computed meanwhile."""

    def look_up(self):
        time.sleep(0.028)
        return b"on the shelf\n"


HANDLES = queue.SimpleQueue()


class Reader(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            # The blank line ends a request; none has a body.
            if line != b"\r\n":
                continue
            handle = HANDLES.get()
            try:
                body = handle.look_up()
            finally:
                HANDLES.put(handle)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class Library(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # The client has left.


for _ in range(3):
    HANDLES.put(Handle())
Library(("127.0.0.1", int(sys.argv[-1])), Reader).serve_forever()
