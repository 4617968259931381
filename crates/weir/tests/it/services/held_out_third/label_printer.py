"""A thread for each connection, and one label printer behind a mutex that is held while it prints for 6 ms; the mutex is the limit: python3 label_printer.py PORT."""
import socket, sys, threading, time


class Printer:
    def __init__(self):
        self.mutex = threading.Lock()
        self.printed = 0

    def label(self):
        with self.mutex:
            time.sleep(0.006)
            self.printed += 1
            return self.printed


def serve(connection, printer):
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            # The blank line ends a request; none has a body.
            if line == b"\r\n":
                body = b"label %d" % printer.label()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main():
    printer = Printer()
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=256)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, printer), daemon=True).start()


main()
