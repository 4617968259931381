"""Three barbers (forked workers) and a waiting room of nine (a backlog of 8); a barber keeps one connection for 25 requests of 6 ms each and accepts no other meanwhile; the accept queue is the limit: barber PORT."""
import os
import signal
import socket
import sys
import time

BARBERS, BACKLOG, REQUESTS = 3, 8, 25


def cut(chair):
    """Serves one customer until it leaves, or has had enough."""
    request = b""
    for number in range(1, REQUESTS + 1):
        while b"\r\n\r\n" not in request:
            piece = chair.recv(8192)
            if not piece:
                return
            request += piece
        # The blank line ends a request; none has a body.
        request = request.partition(b"\r\n\r\n")[2]
        time.sleep(0.006)
        body = b"short back and sides, number %d\n" % number
        way = b"close" if number == REQUESTS else b"keep-alive"
        chair.sendall(b"HTTP/1.1 200 OK\r\nConnection: %s\r\nContent-Length: %d\r\n\r\n%s" % (way, len(body), body))


def barber(door):
    while True:
        chair, _ = door.accept()
        chair.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            cut(chair)
        except OSError:
            pass
        chair.close()


door = socket.socket()
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
door.bind(("127.0.0.1", int(sys.argv[-1])))
door.listen(BACKLOG)
workers = []
for _ in range(BARBERS):
    worker = os.fork()
    if worker == 0:
        import ctypes

        # A worker ends with its parent.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        barber(door)
    workers.append(worker)
for worker in workers:
    os.waitpid(worker, 0)
