#!/usr/bin/env python3
"""Processor time per request of `weir load` beside wrk, h2load and oha, in interleaved rounds against nginx.

    scripts/load-cost.py [WEIR [ROUNDS [SECONDS]]]        # target/release/weir, 6, 5: four to five minutes

nginx has core 0, the generators core 1. A generator that is not installed is left out: wrk (plain), h2load (TLS and HTTP/2:
nghttp2-client), oha (all three: cargo install oha). The ratio is the median over rounds of weir's to the other's of that round.
"""
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

weir = sys.argv[1] if len(sys.argv) > 1 else "target/release/weir"
rounds, secs = ([int(arg) for arg in sys.argv[2:4]] + [6, 5][len(sys.argv[2:4]):])
folder = tempfile.TemporaryDirectory()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_nginx(plain, tls):
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    run += ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(run, cwd=folder.name, check=True, capture_output=True)
    with open(f"{folder.name}/nginx.conf", "w") as file:
        file.write(f"""
            pid pid; error_log error.log; worker_processes 1; events {{}}
            http {{
              access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
              keepalive_requests 1000000000;
              server {{
                listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ssl http2;
                ssl_certificate cert.pem; ssl_certificate_key key.pem;
                location / {{ return 200 "{'x' * 100}"; }}
              }}
            }}""")
    command = ["taskset", "-c", "0", "nginx", "-e", "error.log", "-g", "daemon off;", "-p", ".", "-c", "nginx.conf"]
    nginx = subprocess.Popen(command, cwd=folder.name, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
    for port in (plain, tls):
        while nginx.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
    return nginx


def cpu_us(command, counted):
    """Microseconds of processor time per request; `counted` finds the requests in the output."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(["taskset", "-c", "1", *command], stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read()
    found = re.search(counted, text)
    if status != 0 or not found or int(found[1]) == 0:
        sys.exit(f"error: {' '.join(command)} failed: {text[-500:]}")
    return (usage.ru_utime + usage.ru_stime) * 1e6 / int(found[1])


plain, tls = free_port(), free_port()
http, https = f"http://127.0.0.1:{plain}/", f"https://127.0.0.1:{tls}/"
of_weir = [weir, "load", "--clients", "64", "--warmup", "0s", "--window", f"{secs}s", "--json", "--quiet"]
of_oha = ["oha", "--no-tui", "-z", f"{secs}s", "--insecure"]
WEIR, WRK, H2LOAD, OHA = r'"attempts": ?(\d+)', r"(\d+) requests in", r"(\d+) succeeded", r"\[200\] (\d+) responses"
# What is asked for, and which generators do it in which words.
kinds = {
    "HTTP/1.1, 64 connections": {
        "weir": ([*of_weir, http], WEIR),
        "wrk": (["wrk", "-t", "1", "-c", "64", "-d", f"{secs}s", http], WRK),
        "oha": ([*of_oha, "-c", "64", http], OHA),
    },
    "HTTP/1.1 over TLS, 64 connections": {
        "weir": ([*of_weir, https, "--insecure"], WEIR),
        "h2load": (["h2load", "--h1", "-t", "1", "-c", "64", "-D", str(secs), https], H2LOAD),
        "oha": ([*of_oha, "-c", "64", https], OHA),
    },
    "HTTP/2 over TLS, 4 connections of 16 streams": {
        "weir": ([*of_weir, https, "--insecure", "--http2", "--streams", "16"], WEIR),
        "h2load": (["h2load", "-t", "1", "-c", "4", "-m", "16", "-D", str(secs), https], H2LOAD),
        "oha": ([*of_oha, "--http2", "-c", "4", "-p", "16", https], OHA),
    },
}
nginx = start_nginx(plain, tls)
try:
    figures = {}
    for number in range(rounds):
        for kind, generators in kinds.items():
            there = [name for name, (command, _) in generators.items() if shutil.which(command[0])]
            for name in there if number % 2 == 0 else reversed(there):
                figures.setdefault((kind, name), []).append(cpu_us(*generators[name]))
finally:
    nginx.terminate()
    nginx.wait()
print(f"{'CPU per request, µs':<46} {'generator':<9} {'median':>7} {'weir / it':>9}   rounds")
for (kind, name), each in figures.items():
    ratios = [ours / its for ours, its in zip(figures[kind, "weir"], each)]
    shown = " ".join(f"{us:.2f}" for us in each)
    print(f"{kind:<46} {name:<9} {statistics.median(each):>7.2f} {statistics.median(ratios):>9.2f}   {shown}")
