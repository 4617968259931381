#!/usr/bin/env python3
"""What two builds of weir make of PUTs over MariaDB, in interleaved rounds: the figures of docs/decisions/0004.

    scripts/mysql-cost.py BEFORE AFTER [ROUNDS [RTT_MS]]    # two weir binaries, 5, 0: one minute

Both serve a database each of one private MariaDB. Without RTT_MS servers and database share core 0, the load generator has core 1.
With it the database is on core 1 and every packet to and from it comes so much later, half of it each way, through a relay.
"""
import collections
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LEVELS = [1, 16, 64]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def pass_on(source, sink, delay):
    """Passes on what comes, each piece so much later."""
    pieces, changed = collections.deque(), threading.Condition()

    def receive():
        piece = b"-"
        while piece:
            try:
                piece = source.recv(1 << 20)
            except OSError:
                piece = b""
            with changed:
                pieces.append((time.monotonic() + delay, piece))
                changed.notify()

    threading.Thread(target=receive, daemon=True).start()
    while True:
        with changed:
            changed.wait_for(lambda: pieces)
            due, piece = pieces.popleft()
        time.sleep(max(0, due - time.monotonic()))
        try:
            sink.sendall(piece) if piece else sink.shutdown(socket.SHUT_WR)
        except OSError:
            return
        if not piece:
            return


def relay(port, rtt):
    """A port behind which is the other one, so many seconds away."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            ends = [listener.accept()[0], socket.create_connection(("127.0.0.1", port))]
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in (ends, ends[::-1]):
                threading.Thread(target=pass_on, args=(source, sink, rtt / 2), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def quiet(*command, **more):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def until(*command):
    while quiet(*command).wait():
        time.sleep(0.1)


def main(before, after, rounds=5, rtt_ms=0.0):
    binaries, rtt, processes = [before, after], float(rtt_ms) / 1000, []
    home = tempfile.mkdtemp()
    try:
        os.chmod(home, 0o711)
        data, port = f"{home}/data", free_port()
        own = ["--user=mysql"] if os.getuid() == 0 else []
        quiet("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *own).wait()
        processes.append(quiet("taskset", "-c", "1" if rtt else "0", "mariadbd", "--no-defaults", f"--datadir={data}", f"--port={port}",
                               "--bind-address=127.0.0.1", f"--socket={data}/socket", *own))
        client = ["mariadb", "-u", "root", "-S", f"{data}/socket", "-e"]
        until(*client, "SELECT 1")
        until(*client, "CREATE USER w@localhost; GRANT ALL ON *.* TO w@localhost; CREATE DATABASE w0; CREATE DATABASE w1")
        reached, servers = relay(port, rtt) if rtt else port, []
        for number, binary in enumerate(binaries):
            servers.append(free_port())
            store = f"mysql://w@127.0.0.1:{reached}/w{number}"
            processes.append(quiet("taskset", "-c", "0", binary, "serve", "--workers", "1", "--listen", f"127.0.0.1:{servers[-1]}", "--store", store))
            until("curl", "-sf", f"http://127.0.0.1:{servers[-1]}/readyz")
        found = {}
        for number in range(int(rounds)):
            for level in LEVELS:
                for which in (0, 1) if number % 2 else (1, 0):
                    load = ["taskset", "-c", "1", after, "load", f"http://127.0.0.1:{servers[which]}", "--workload", "put_only", "--keys", "1000",
                            "--clients", str(level), "--warmup", "500ms", "--duration", "2s", "--json"]
                    run = subprocess.run(load, capture_output=True, check=True)
                    found.setdefault(level, ([], []))[which].append(json.loads(run.stdout)["goodput_rps"])
        print(f"PUT/s, medians of {rounds} rounds; ratio of each round: median (lowest to highest)")
        for level, (old, new) in found.items():
            ratios = [a / b for a, b in zip(new, old)]
            print(f"{level:3} clients: {statistics.median(old):7.0f} {statistics.median(new):7.0f}   "
                  f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(home)


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
