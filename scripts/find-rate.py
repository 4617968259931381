#!/usr/bin/env python3
"""How near `weir load --find-rate` comes to a truth that is known.

usage: scripts/find-rate.py WEIR [RUNS] [WITHIN] [constant|poisson|nginx]

Constant and poisson: the target serves one request at a time, each for exactly 2.5 ms, in the order of their arrival. So at a constant rate p99 < 20 ms
holds up to 400 requests per second: above it, the queue grows. With Poisson arrivals it is a queue of the kind M/D/1, and the
truth is where the 99th percentile of its simulated time in the system is 20 ms.
nginx: a real nginx whose `limit_req` lets 500 requests per second through and answers 503 to the others. Less than 1 % of the
requests fail up to 500 / 0.99 per second.
Prints for each search what was found, how far it is from the truth, and how long it took.
"""
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

SERVICE = 0.0025
LIMIT = 0.020
PASSED = 500
FAILING = 0.01
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def serve(listener):
    """Requests leave one after the other, by the clock: a late wake-up delays an answer, but takes nothing from the capacity."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    listener.setblocking(False)
    waiting, free_at = [], 0.0
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            connection = waiting.pop(0)[1]
            try:
                connection.send(ANSWER)
            except OSError:
                pass
        # The last moment is waited for without sleeping.
        wait = max(waiting[0][0] - now - 0.0002, 0) if waiting else None
        for key, _ in selector.select(wait):
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
                continue
            try:
                text = key.fileobj.recv(65536)
            except OSError:
                text = b""
            if not text:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                continue
            for _ in range(text.count(b"\r\n\r\n")):
                free_at = max(free_at, time.monotonic()) + SERVICE
                waiting.append((free_at, key.fileobj))


def start_nginx(folder, port):
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(f"""
            daemon off; pid pid; error_log error.log crit; worker_processes 1; events {{}}
            http {{
              access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
              limit_req_zone $server_port zone=all:1m rate={PASSED}r/s;
              server {{ listen 127.0.0.1:{port}; location / {{ root .; limit_req zone=all burst=5 nodelay; }} }}
            }}""")
    # Not `return 200`, which comes before the limit.
    with open(f"{folder}/page", "w") as file:
        file.write("ok")
    os.chmod(folder, 0o755)
    os.environ["PATH"] += ":/usr/sbin"
    os.chdir(folder)
    os.execvp("nginx", ["nginx", "-e", "error.log", "-p", ".", "-c", "nginx.conf"])


def wait_for(port):
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)


def p99(rate, customers=400_000):
    """Of M/D/1, by Lindley's recursion."""
    draw = random.Random(1)
    wait, times = 0.0, []
    for _ in range(customers):
        times.append(wait + SERVICE)
        wait = max(0.0, wait + SERVICE - draw.expovariate(rate))
    times.sort()
    return times[int(customers * 0.99)]


def truth(kind):
    if kind == "nginx":
        return PASSED / (1 - FAILING)
    if kind == "constant":
        return 1 / SERVICE
    low, high = 0.3 / SERVICE, 1 / SERVICE
    while high / low > 1.001:
        middle = (low + high) / 2
        low, high = (middle, high) if p99(middle) < LIMIT else (low, middle)
    return low


def main():
    weir = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    within = sys.argv[3] if len(sys.argv) > 3 else "60s"
    kind = sys.argv[4] if len(sys.argv) > 4 else "constant"
    condition = f"errors<{FAILING:.0%}" if kind == "nginx" else f"p99<{LIMIT * 1e3:.0f}ms"
    try:
        # So that other work on the machine delays neither the target nor the generator.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        print("with real-time priority")
    except OSError:
        print("without real-time priority: nothing else should run")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    folder = tempfile.TemporaryDirectory()
    if kind == "nginx":
        listener.close()
    target = os.fork()
    if target == 0:
        try:
            start_nginx(folder.name, port) if kind == "nginx" else serve(listener)
        finally:
            os._exit(1)
    try:
        wait_for(port)
        expected = truth(kind)
        print(f"truth {expected:.1f} req/s, {kind}, {condition}, --within {within}")
        near = 0
        for run in range(runs):
            flags = ["--clients", "64", "--find-rate", condition, "--within", within]
            flags += ["--arrivals", "poisson"] if kind == "poisson" else []
            flags += ["--seed", str(run + 1), "--quiet", "--json"]
            output = subprocess.run([weir, "load", f"http://127.0.0.1:{port}/page"] + flags, stdout=subprocess.PIPE)
            found = json.loads(output.stdout)
            rate = found["estimate_rps"] or found["holds_rps"] or 0
            off = rate / expected - 1
            near += abs(off) <= 0.03
            holds, breaks = found["holds_rps"] or 0, found["breaks_rps"] or 0
            print(f"{run + 1:2}  found {rate:6.1f}  off {off * 100:+5.1f} %  holds {holds:6.1f}  breaks {breaks:6.1f}  "
                  f"{found['ended']}  {found['secs']:.0f} s", flush=True)
        print(f"within 3 %: {near} of {runs}")
    finally:
        os.kill(target, signal.SIGTERM)
        os.waitpid(target, 0)


if __name__ == "__main__":
    main()
