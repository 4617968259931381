"""Python threads, and a C function that is called without letting go of the interpreter, so that all stand still for 380 ms after every 120 ms; these pauses are the limit: python3 narcolepsy.py PORT."""
import ctypes
import socketserver
import sys
import threading
import time

# PyDLL (other than CDLL) keeps the interpreter's lock during the call: no other thread can run meanwhile.
usleep = ctypes.PyDLL(None).usleep


def doze():
    while True:
        time.sleep(0.120)
        usleep(380_000)


class Awake(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            # The blank line ends a request; none has a body.
            if line == b"\r\n":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nawake\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # The client has left.


threading.Thread(target=doze, daemon=True).start()
Server(("127.0.0.1", int(sys.argv[-1])), Awake).serve_forever()
