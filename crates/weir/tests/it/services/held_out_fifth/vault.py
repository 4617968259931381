"""A vault that derives a key from a password for each visitor, some 6 ms in C code without the interpreter's lock, a thread for each connection; the processor is the limit: vault PORT."""
import hashlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Vault(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one write for head and body

    def do_GET(self):
        key = hashlib.pbkdf2_hmac("sha256", b"open sesame", b"salt and pepper", 20000)
        body = key.hex().encode() + b"\n"
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


Server(("127.0.0.1", int(sys.argv[-1])), Vault).serve_forever()
