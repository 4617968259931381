"""One acceptor that takes 8 ms for each connection and then closes it; the accept queue, with room for hardly any, is the limit: python3 gate.py PORT."""
import socket, sys, time


def serve(connection):
    # A client that sends nothing must not keep the gate shut.
    connection.settimeout(0.2)
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(4096)
        if not data:
            return
        received += data
    time.sleep(0.008)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npass\n")


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1)
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                serve(connection)
            except OSError:
                pass  # The client has left, or was silent.


main()
