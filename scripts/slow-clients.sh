#!/usr/bin/env bash
# What slow clients do to a normal one: 2,000 of a kind beside it, against weir and against nginx. Prints the table in
# docs/performance.md: scripts/slow-clients.sh [REPETITIONS], three minutes each.
#
# The normal client asks for short values at a constant rate, whether or not it has answers (open loop). The slow ones are
# those of slowhttptest: heads and bodies that do not end, and answers that are hardly read. The server has core 0, all
# clients core 1. All run in a network of their own with packets of 1,500 bytes: on the usual loopback the kernel alone would
# hold whole answers, until the memory it has for them is used up.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${SLOW_CLIENTS_NETWORK-}" = "" ]; then
    scripts/setup.sh cargo cc nginx slowhttptest
    cargo build --release --locked --quiet
    ulimit -n "$(ulimit -Hn)"
    SLOW_CLIENTS_NETWORK=own exec unshare --map-root-user --net "$0" "$@"
fi
ip link set lo mtu 1500 up
weir=${CARGO_TARGET_DIR:-target}/release/weir
repetitions=${1:-3}
slow=2000

work=$(mktemp -d)
server= attack=
stop() {
    local process
    for process in $attack $server; do
        kill "$process" && wait "$process" || true
    done 2>/dev/null
    attack= server=
}
trap 'stop; rm -rf "$work"' EXIT

# Starts a server for $1; leaves its port in $port.
start() {
    local dir=$work/$1 connections=
    rm -rf "$dir" && mkdir -p "$dir/kv"
    if [ "$1" = weir ]; then
        taskset -c 0 "$weir" serve --listen 127.0.0.1:0 --store "file:$dir/store" >"$dir/out" 2>"$dir/log" &
        server=$!
        until grep -qs '^listening' "$dir/out"; do sleep 0.05; done
        port=$(sed -n 's/^listening .*://p' "$dir/out")
        return
    fi
    port=18099
    [ "$1" != nginx_raised ] || connections="worker_connections 10000;"
    # Else all is as nginx has it. Values can be written, so that it reads bodies.
    cat >"$dir/nginx.conf" <<-END
		daemon off; pid nginx.pid; user root;
		events { $connections }
		http {
		    access_log off;
		    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
		    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
		    server { listen 127.0.0.1:$port; location /kv/ { root $dir; dav_methods PUT DELETE; } }
		}
	END
    taskset -c 0 nginx -p "$dir" -c "$dir/nginx.conf" -e "$dir/nginx.log" &
    server=$!
    until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
}

# How many the server has, or the kernel for it.
connections() {
    awk -v port="$(printf ':%04X' "$port")" '$4 == "01" && substr($2, 9) == port' /proc/net/tcp | wc -l
}

field() {
    sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"
}

# One run: server $1, slow clients $2. Prints both, slow connections before and after, p99 in ms, and the share of requests
# that succeeded.
run() {
    local url kind=() tries=0 before after p99 due successes
    start "$1"
    url=http://127.0.0.1:$port
    head -c 1000000 /dev/zero | curl -sf -o "$work/answer" -T - -H 'Content-Length: 1000000' -H 'Transfer-Encoding:' "$url/kv/large"
    taskset -c 1 "$weir" load "$url" --clients 8 --warmup 100ms --window 500ms --quiet >"$work/preload" 2>&1
    case $2 in
        none) ;;
        heads) kind=(-H -i 4) ;;
        bodies) kind=(-B -t PUT -s 500000 -x 10 -i 4) ;;
        readers) kind=(-X -k 5 -w 512 -y 1024 -n 4 -z 32) ;;
    esac
    if [ "$2" != none ]; then
        taskset -c 1 slowhttptest "${kind[@]}" -c $slow -r $slow -l 60 -p 60 -u "$url/kv/large" >"$work/attack" 2>&1 &
        attack=$!
        until [ "$(connections)" -ge $slow ] || [ $((tries += 1)) -gt 40 ]; do sleep 0.1; done
    fi
    before=$(connections)
    taskset -c 1 "$weir" load "$url" --no-preload --clients 8 --rate 2000 --warmup 500ms --window 4s --quiet --json \
        >"$work/report" 2>"$work/errors" || true
    after=$(connections)
    stop
    p99=$(grep -o '"latency":{[^}]*}' "$work/report" | sed -n 1p | field us_p99)
    due=$(field due <"$work/report")
    successes=$(sed -n 's/.*"attempts":[0-9]*,"successes":\([0-9]*\),"goodput.*/\1/p' "$work/report")
    awk -v run="$1 $2 $before $after" -v p99="$p99" -v due="$due" -v successes="$successes" 'BEGIN {
        printf "%s %s %.2f\n", run, successes ? sprintf("%.2f", p99 / 1000) : "none", due ? successes / due : 0 }'
}

for _ in $(seq "$repetitions"); do
    for kind in none heads bodies readers; do
        for target in weir nginx nginx_raised; do
            run $target $kind | tee -a "$work/runs" >&2
        done
    done
done

median() {
    awk -v target="$1" -v kind="$2" '$1 == target && $2 == kind { print ($5 == "none" ? "none answered" : $5 " ms") }' "$work/runs" |
        sort -n | sed -n "$(((repetitions + 1) / 2))p"
}
echo "| slow clients | weir | nginx | nginx, worker_connections 10000 |"
echo "|---|--:|--:|--:|"
for kind in none heads bodies readers; do
    echo "| $kind | $(median weir $kind) | $(median nginx $kind) | $(median nginx_raised $kind) |"
done
