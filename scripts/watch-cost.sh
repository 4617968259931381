#!/usr/bin/env bash
# What events cost durable writes, in one interleaved run. Prints the table in docs/performance.md:
# scripts/watch-cost.sh [REPETITIONS] [OTHER_WEIR], half a minute each. OTHER_WEIR is an earlier binary, to compare with.
#
# The server has core 0, load generator and watchers core 1: 64 clients put values of 100 bytes into an embedded store, and delete one in ten. CPU is the
# processor time of the server, user and system, over the writes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh cargo cc
[ -n "${WEIR-}" ] || cargo build --release --locked --quiet
weir=${WEIR:-${CARGO_TARGET_DIR:-target}/release/weir}
repetitions=${1:-5} other=${2:-} seconds=${SECONDS_EACH:-4} watchers=${WATCHERS:-1000}

work=$(mktemp -d)
cat >"$work/watch.py" <<'PYTHON'
# Watches as many prefixes as it is told to; prints how many events came.
import resource, selectors, signal, socket, sys
port, count, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64,) * 2)
selector, events, done = selectors.DefaultSelector(), 0, []
for number in range(count):
    # Of the keys that are written, and of others.
    prefix = f"put_{100 + number % 900}" if kind == "busy" else f"none{number}"
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(f"GET /watch?prefix={prefix} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    selector.register(stream, selectors.EVENT_READ)
signal.signal(signal.SIGTERM, lambda *_: done.append(1))
print("watching", flush=True)
while not done:
    for key, _ in selector.select(0.1):
        events += key.fileobj.recv(1 << 16).count(b"event: put")
print(events, flush=True)
PYTHON

# One measurement: name, binary, watchers (none, idle or busy), flags.
measure() {
    local name=$1 binary=$2 watch=$3
    shift 3
    rm -rf "$work/store"
    taskset -c 0 "$binary" serve --listen 127.0.0.1:0 --workers 1 --store "file:$work/store" "$@" >"$work/out" 2>"$work/log" &
    local server=$! watcher= port before after ticks
    until grep -qs '^listening' "$work/out"; do sleep 0.05; done
    port=$(sed -n 's/^listening .*://p' "$work/out")
    if [ "$watch" != none ]; then
        taskset -c 1 python3 "$work/watch.py" "$port" "$watchers" "$watch" >"$work/watched" &
        watcher=$!
        until grep -qs '^watching' "$work/watched"; do sleep 0.05; done
    fi
    cpu() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }
    before=$(cpu)
    taskset -c 1 "$binary" load "http://127.0.0.1:$port" --workload put_all --keys 100000 --value-size 100 --clients 64 \
        --warmup 0s --window "${seconds}s" --json >"$work/load.json" 2>/dev/null
    after=$(cpu)
    ticks=$((after - before))
    [ -z "$watcher" ] || { kill "$watcher" && wait "$watcher" || true; }
    kill "$server" && wait "$server" || true
    python3 - "$name" "$ticks" "$(getconf CLK_TCK)" "$work" <<'PYTHON' >>"$work/rows"
import json, os, sys
name, ticks, rate, work = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
row = json.load(open(f"{work}/load.json"))
watched = open(f"{work}/watched").read().split()[-1] if os.path.exists(f"{work}/watched") else "0"
print(name, row["goodput_rps"], ticks / rate * 1e6 / max(row["attempts"], 1), watched, sep="\t")
PYTHON
    rm -f "$work/watched"
}
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq "$repetitions"); do
    [ -z "$other" ] || measure "earlier binary" "$other" none
    measure "no log, no watchers" "$weir" none
    measure "event log" "$weir" none --event-log 1h
    measure "event log, $watchers idle watchers" "$weir" idle --event-log 1h
    measure "event log, $watchers busy watchers" "$weir" busy --event-log 1h
done
python3 - "$work/rows" <<'PYTHON'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, goodput, cpu, events = line.rstrip("\n").split("\t")
    rows.setdefault(name, []).append((float(goodput), float(cpu), int(events)))
base = rows["no log, no watchers"]
print("| | writes/s | ratio | server CPU per write, µs | ratio | events |\n|---|---|---|---|---|---|")
for name, of in rows.items():
    ratio = lambda index: [mine[index] / theirs[index] for mine, theirs in zip(of, base)]
    shown = lambda values: f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"
    goodput, cpu = (statistics.median(row[index] for row in of) for index in (0, 1))
    print(f"| {name} | {goodput:,.0f} | {shown(ratio(0))} | {cpu:.2f} | {shown(ratio(1))} | {of[-1][2]:,} |")
PYTHON
