#!/usr/bin/env bash
# What a page of a list with values costs beside a batch that reads the same rows: processor time of server and store for 1000 rows,
# user and system, in turns: scripts/list-cost.sh [REPETITIONS] [URL-OF-POSTGRESQL PID-OF-ITS-POSTMASTER], or without a URL for the
# embedded store. The rows have values of 100 B. The cache is as small as it can be, so that a batch reads from the store, too; the last
# column is a batch out of the cache.
set -euo pipefail
cd "$(dirname "$0")/.."
weir=${WEIR:-${CARGO_TARGET_DIR:-target}/release/weir}
repetitions=${1:-7} store=${2:-} postmaster=${3:-}
rows=100000 page=1000
work=$(mktemp -d)
declare -A pids urls
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

start() {
    local name=$1
    shift
    "$weir" serve --listen 127.0.0.1:0 --workers 1 --store "${store:-file:$work/store}" "$@" >"$work/$name" 2>"$work/$name.log" &
    pids[$name]=$!
    until grep -qs '^listening' "$work/$name"; do sleep 0.05; done
    urls[$name]=http://$(sed -n 's/^listening //p' "$work/$name")
}
stop() {
    kill "${pids[$1]}" && wait "${pids[$1]}" || true
    unset "pids[$1]"
}
# Processor time of a server and of the database, in seconds.
cpu() {
    local of=("/proc/${pids[$1]}/stat") child
    if [ -n "$postmaster" ]; then
        of+=("/proc/$postmaster/stat")
        for child in $(cat /proc/"$postmaster"/task/*/children); do of+=("/proc/$child/stat"); done
    fi
    cat "${of[@]}" 2>/dev/null | sed 's/.*) //' | awk -v hz="$(getconf CLK_TCK)" '{ t += $12 + $13 } END { print t / hz }'
}
value=$(head -c 100 /dev/zero | tr '\0' v)
seq -f '{"op":"put","key":"list-cost/%08.0f","value":"'"$value"'"}' 0 $((rows - 1)) >"$work/puts"
split -l $page -d -a 3 "$work/puts" "$work/put-"
sed 's/"op":"put"/"op":"get"/; s/,"value":"[^"]*"//' "$work/puts" >"$work/gets"
split -l $page -d -a 3 "$work/gets" "$work/get-"

# Files for curl: 100 requests over one connection.
requests() {
    local what=$1 url=$2 part
    for part in "$work"/get-*; do
        case $what in
            list) printf 'next\nurl = "%s/kv?values=true&limit=%s&prefix=list-cost/&after=%s"\nheader = "Accept: application/x-ndjson"\noutput = /dev/null\nsilent\nfail\n' \
                "$url" $page "$(sed -n '1s/.*"key":"\([^"]*\)".*/\1/p' "$part" | tr -d '\n' | base64 | tr -d '=')" ;;
            batch) printf 'next\nurl = "%s/batch"\ndata-binary = "@%s"\noutput = /dev/null\nsilent\nfail\n' "$url" "$part" ;;
        esac
    done | sed 1d
}
cost() { # server, file
    local before
    before=$(cpu "$1")
    for _ in 1 2 3; do curl -K "$2"; done
    cpu "$1" | awk -v before="$before" -v pages=$((3 * rows / page)) '{ printf "%.3f", ($1 - before) / pages * 1e3 }'
}
start fill
for part in "$work"/put-*; do curl -sf --data-binary "@$part" "${urls[fill]}/batch" | tail -n 1 | grep -q '"failed":0'; done
stop fill
for ((i = 0; i < repetitions; i++)); do
    start small --cache-entries 0
    requests list "${urls[small]}" >"$work/list"
    requests batch "${urls[small]}" >"$work/batch"
    curl -K "$work/list" && curl -K "$work/batch"
    if ((i % 2)); then b=$(cost small "$work/batch") l=$(cost small "$work/list"); else l=$(cost small "$work/list") b=$(cost small "$work/batch"); fi
    stop small
    start large
    requests batch "${urls[large]}" >"$work/batch"
    curl -K "$work/batch"
    echo "$l $b $(cost large "$work/batch")"
    stop large
done | awk '{ print "list", $1, "ms, batch", $2, "ms, ratio", $1 / $2 "; out of the cache", $3, "ms" }'
