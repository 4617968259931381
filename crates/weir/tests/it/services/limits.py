"""Services with a known limit: python3 limits.py LIMIT PORT."""
import os, socket, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

limit, port = sys.argv[1], int(sys.argv[2])
lock, pool = threading.Lock(), ThreadPoolExecutor(4)
log = tempfile.TemporaryFile(dir=".")


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def locked():
    with lock:
        time.sleep(0.005)


def pooled():
    pool.submit(time.sleep, 0.02).result()


def flushed():
    with lock:
        # Of a fast disk a single flush takes no longer than all else that a request needs.
        for _ in range(5):
            os.write(log.fileno(), b"x" * 4096)
            os.fsync(log.fileno())


class Downstream(threading.local):
    """A connection of each thread to `limits.py behind`."""

    def ask(self):
        if not hasattr(self, "socket"):
            self.socket = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
        self.socket.sendall(b"?\n")
        self.socket.recv(100)


def serve_behind():
    """Answers each line after 30 ms."""
    def answer(connection):
        while connection.recv(100):
            time.sleep(0.03)
            connection.sendall(b"!\n")

    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


if limit == "behind":
    serve_behind()
downstream = Downstream()
work = {
    "lock": locked,
    "pool": pooled,
    "sleep": lambda: time.sleep(0.03),
    "cpu": lambda: compute(0.002),
    "disk": flushed,
    "downstream": downstream.ask,
    "delayed-ack": lambda: None,
    "accept-queue": lambda: time.sleep(0.005),
}[limit]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0" if limit == "accept-queue" else "HTTP/1.1"

    def do_GET(self):
        work()
        close = b"Connection: close\r\n" if limit == "accept-queue" else b""
        head, body = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + close + b"\r\n", b"hello"
        if limit == "delayed-ack":
            # Two small segments: the second waits until the first is acknowledged, which the client puts off.
            self.wfile.write(head)
            self.wfile.write(body)
        else:
            self.wfile.write(head + body)

    def log_message(self, *_):
        pass


class Server(HTTPServer if limit == "accept-queue" else ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", port), Handler).serve_forever()
