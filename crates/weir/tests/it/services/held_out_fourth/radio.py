"""Answers of 132 kB on connections that the kernel paces to 900 kB/s each; that bandwidth is the limit: python3 radio.py PORT."""
import socket
import sys
import threading

RATE = 900_000
SO_MAX_PACING_RATE = 47  # In bytes per second; the module has no name for it.
SONG = b"la" * 66_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(SONG), SONG)


def serve(connection):
    with connection:
        connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, RATE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        try:
            while data := connection.recv(4096):
                received += data
                # The blank line ends a request; none has a body.
                while b"\r\n\r\n" in received:
                    received = received.partition(b"\r\n\r\n")[2]
                    connection.sendall(ANSWER)
        except OSError:
            pass  # The client has left.


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[-1])), backlog=256)
    # As on a network card; the large segments of loopback are too coarse to be paced evenly.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1448)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
