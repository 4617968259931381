#!/usr/bin/env python3
"""What events and those who watch them cost durable writes, in interleaved rounds. Prints the table in docs/performance.md.

    scripts/watch-cost.py [WEIR [ROUNDS [SECONDS]]]        # target/release/weir, 24, 3: six minutes

Two servers, one with an event log, have core 0 in turn; load generator and watchers have core 1. 64 clients put values of 100
bytes into an embedded store, and delete one in ten. Processor time is that of the server, user and system, over the writes.
Ratios are to the event log without watchers, of the same round.
"""
import json
import os
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

WATCHERS = 1000
# Name, whether events are kept, and what is watched: nothing, keys that nobody writes, or those that are written.
ROWS = [
    ("no event log, no watchers", False, None),
    ("`--event-log 1h`", True, None),
    (f"and {WATCHERS:,} watchers of keys that nobody writes", True, lambda number: f"none{number}"),
    (f"and {WATCHERS:,} watchers that are told of all writes", True, lambda number: f"put_{100 + number % 900}"),
]


def watch(port, prefix_of):
    """Watches until it is told to end; prints how many puts it was told of."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (WATCHERS + 64,) * 2)
    selector, events, ended = selectors.DefaultSelector(), 0, []
    for number in range(WATCHERS):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.sendall(f"GET /watch?prefix={prefix_of(number)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        selector.register(stream, selectors.EVENT_READ)
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    while not ended:
        for key, _ in selector.select(0.1):
            events += key.fileobj.recv(1 << 16).count(b"event: put")
    print(events)


if sys.argv[1:2] == ["--watch"]:
    watch(int(sys.argv[2]), ROWS[int(sys.argv[3])][2])
    sys.exit()

weir = sys.argv[1] if len(sys.argv) > 1 else "target/release/weir"
rounds, secs = [int(arg) for arg in sys.argv[2:4]] + [24, 3][len(sys.argv[2:4]):]
folder = tempfile.TemporaryDirectory()


class Server:
    def __init__(self, keeps_events):
        command = ["taskset", "-c", "0", weir, "serve", "--listen", "127.0.0.1:0", "--workers", "1"]
        command += ["--store", f"file:{folder.name}/store-{keeps_events}"] + ["--event-log", "1h"] * keeps_events
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = next(line for line in self.process.stdout if line.startswith("listening "))
        self.port = int(line.rsplit(":", 1)[1])

    def await_watchers(self, count):
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
                if f"weir_watchers {count}\n" in answer.read().decode():
                    return
            time.sleep(0.02)

    def cpu_secs(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def load(self):
        """Writes a second, and the server's processor time per write in microseconds."""
        before = self.cpu_secs()
        command = ["taskset", "-c", "1", weir, "load", f"http://127.0.0.1:{self.port}", "--workload", "put_all"]
        command += ["--keys", "100000", "--value-size", "100", "--clients", "64", "--warmup", "0s"]
        command += ["--window", f"{secs}s", "--json"]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
        return row["goodput_rps"], (self.cpu_secs() - before) / row["attempts"] * 1e6


servers = [Server(False), Server(True)]
results = [[] for _ in ROWS]
told = 0
for number in range(rounds):
    for index in list(range(len(ROWS)))[:: -1 if number % 2 else 1]:
        _, keeps_events, prefix_of = ROWS[index]
        server = servers[keeps_events]
        if prefix_of is None:
            results[index].append(server.load())
            continue
        command = ["taskset", "-c", "1", sys.executable, sys.argv[0], "--watch", str(server.port), str(index)]
        watchers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        server.await_watchers(WATCHERS)
        results[index].append(server.load())
        watchers.terminate()
        told = max(told, int(watchers.communicate()[0]))
        server.await_watchers(0)
for server in servers:
    server.process.terminate()
    server.process.wait()


def ratio(rows, column):
    each = [row[column] / base[column] for row, base in zip(rows, results[1])]
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
    return f"{statistics.median(each):.3f} (mean {statistics.mean(each):.3f} ± {error:.3f})"


print("| | writes/s | ratio | server CPU per write | ratio |\n|---|--:|---|--:|---|")
for (name, _, _), rows in zip(ROWS, results):
    goodput, cpu_us = (statistics.median(row[column] for row in rows) for column in (0, 1))
    print(f"| {name} | {goodput:,.0f} | {ratio(rows, 0)} | {cpu_us:.1f} µs | {ratio(rows, 1)} |")
print(f"Told in a round: up to {told:,} puts.")
