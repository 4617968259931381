"""A service whose threads ask another process for each request, which takes 25 ms: python3 behind.py PORT."""
import http.client, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1
    here, delay, ask = threading.local(), 0.025, None

    def do_GET(self):
        if self.ask is None:
            time.sleep(self.delay)
        else:
            if not hasattr(self.here, "connection"):
                self.here.connection = http.client.HTTPConnection("127.0.0.1", self.ask)
            self.here.connection.request("GET", "/")
            self.here.connection.getresponse().read()
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


other = Server(("127.0.0.1", 0), Handler)
if os.fork() == 0:
    # It ends with its parent.
    threading.Thread(target=lambda parent: [time.sleep(1) for _ in iter(lambda: os.getppid() == parent, False)] and os._exit(0), args=(os.getppid(),)).start()
    other.serve_forever()
Handler.ask = other.server_address[1]
other.socket.close()
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
