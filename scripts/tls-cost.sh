#!/usr/bin/env bash
# What TLS and tokens cost a cached GET, what a batch saves, and what handshakes cost, beside nginx in one interleaved run. Prints the tables in
# docs/performance.md: scripts/tls-cost.sh [REPETITIONS] [OTHER_WEIR], half a minute each. OTHER_WEIR is an earlier binary, to
# compare a plain GET with.
#
# The server has core 0, the client core 1. Requests come over 64 connections of wrk that stay open, handshakes from
# openssl s_time, which resumes sessions of TLS 1.2 only. CPU is the processor time of the server, user and system, over requests or handshakes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh cargo cc nginx openssl wrk
[ -n "${WEIR-}" ] || cargo build --release --locked --quiet
weir=${WEIR:-${CARGO_TARGET_DIR:-target}/release/weir}
repetitions=${1:-5} other=${2:-} seconds=${SECONDS_EACH:-2}

work=$(mktemp -d)
declare -A pids urls
stop() {
    local name
    for name in "${!pids[@]}"; do
        kill "${pids[$name]}" && wait "${pids[$name]}" || true
    done 2>/dev/null
}
trap 'stop; rm -rf "$work"' EXIT

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext basicConstraints=critical,CA:FALSE -out "$work/cert.pem" -keyout "$work/key.pem" 2>/dev/null
token=$("$weir" token bench --tokens "$work/tokens.toml")
tls=(--tls-cert "$work/cert.pem" --tls-key "$work/key.pem")

# Starts a weir: name, binary, scheme, flags.
start() {
    local name=$1 binary=$2 scheme=$3
    shift 3
    taskset -c 0 "$binary" serve --listen 127.0.0.1:0 --workers 1 --store memory: "$@" >"$work/$name" 2>"$work/$name.log" &
    pids[$name]=$!
    until grep -qs '^listening' "$work/$name"; do sleep 0.05; done
    urls[$name]=$scheme://$(sed -n 's/^listening //p' "$work/$name")
    head -c 100 /dev/zero | curl -skf -T - -H "Authorization: Bearer $token" "${urls[$name]}/kv/a"
}
start plain "$weir" http
start token "$weir" http --tokens "$work/tokens.toml"
start tls "$weir" https "${tls[@]}"
[ -z "$other" ] || start before "$other" http

seq -f '{"op":"put","key":"k%g","value":"'"$(printf 'x%.0s' {1..100})"'"}' 1000 |
    curl -sf --data-binary @- -H 'Content-Type: application/x-ndjson' "${urls[plain]}/batch" | grep -q '"done":1000,"failed":0'
cat >"$work/batch.lua" <<'END'
local lines = {}
for number = 1, 1000 do lines[number] = '{"op":"get","key":"k' .. number .. '"}\n' end
wrk.method, wrk.path, wrk.body = "POST", "/batch", table.concat(lines)
wrk.headers["Content-Type"] = "application/x-ndjson"
END

mkdir "$work/nginx"
value=$(printf 'x%.0s' {1..100})
cat >"$work/nginx/conf" <<END
daemon off; pid $work/nginx/pid; user root; worker_processes 1; error_log $work/nginx/log;
events { worker_connections 1000; }
http {
    access_log off; keepalive_requests 100000000;
    ssl_certificate $work/cert.pem; ssl_certificate_key $work/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on;
    server { listen 127.0.0.1:18098; listen 127.0.0.1:18099 ssl; location / { return 200 "$value"; } }
}
END
taskset -c 0 nginx -p "$work/nginx" -c "$work/nginx/conf" &
pids[nginx_plain]=$!
until curl -sf http://127.0.0.1:18098/ >/dev/null; do sleep 0.05; done
urls[nginx_plain]=http://127.0.0.1:18098
urls[nginx_tls]=https://127.0.0.1:18099
pids[nginx_tls]=$(pgrep -P "${pids[nginx_plain]}")
nginx_worker=${pids[nginx_tls]}

# Processor time so far, in clock ticks.
ticks() {
    awk '{ print $14 + $15 }' "/proc/$1/stat"
}

# Runs a client against a server; its output has the number of requests or handshakes in $count. Appends CPU in µs to a file.
measure() {
    local what=$1 name=$2 count=$3 pid before after number
    shift 3
    pid=${pids[$name]}
    [ "${name#nginx}" = "$name" ] || pid=$nginx_worker
    before=$(ticks "$pid")
    number=$(taskset -c 1 "$@" 2>&1 | sed -nE "$count" | head -n 1)
    after=$(ticks "$pid")
    awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" -v number="$number" \
        'BEGIN { printf "%.3f\n", ticks / hz * 1e6 / number }' >>"$work/$what-$name.us"
}

for _ in $(seq "$repetitions"); do
    for name in plain ${other:+before} token tls nginx_plain nginx_tls; do
        measure get $name 's/^ *([0-9]+) requests in .*/\1/p' wrk -t1 -c64 "-d${seconds}s" \
            -H "Authorization: Bearer $token" "${urls[$name]}/kv/a"
    done
    measure batch plain 's/^ *([0-9]+) requests in .*/\1/p' wrk -t1 -c64 "-d${seconds}s" -s "$work/batch.lua" "${urls[plain]}"
    for name in tls nginx_tls; do
        for kind in new reuse; do
            measure $kind $name 's/^([0-9]+) connections in [0-9.]+ real seconds.*/\1/p' \
                openssl s_time -tls1_2 -connect "${urls[$name]#https://}" -$kind -time "$seconds"
        done
    done
done

# The median of a file, or of the ratios of two, pair by pair.
median() {
    paste "$@" | awk '{ print NF == 2 ? $1 / $2 : $1 }' | sort -n | awk '{ all[NR] = $1 } END { printf "%.2f", all[int((NR + 1) / 2)] }'
}
us() {
    median "$work/$1.us"
}
ratio() {
    median "$work/$1.us" "$work/$2.us"
}
echo "| cached GET of 100 B, 64 connections | CPU | ratio |"
echo "|---|--:|--:|"
echo "| weir, plain | $(us get-plain) µs | 1 |"
[ -z "$other" ] || echo "| weir before, plain | $(us get-before) µs | $(ratio get-before get-plain) |"
echo "| weir, plain, with a token | $(us get-token) µs | $(ratio get-token get-plain) |"
awk -v us="$(us batch-plain)" -v batches="$(ratio batch-plain get-plain)" \
    'BEGIN { printf "| weir, plain, one of 1,000 in a batch | %.2f µs | %.2f |\n", us / 1000, batches / 1000 }'
echo "| weir, TLS 1.3 | $(us get-tls) µs | $(ratio get-tls get-plain) |"
echo "| nginx, plain | $(us get-nginx_plain) µs | 1 |"
echo "| nginx, TLS 1.3 | $(us get-nginx_tls) µs | $(ratio get-nginx_tls get-nginx_plain) |"
echo
echo "| TLS 1.2 handshakes per CPU second, ECDSA P-256 | full | resumed |"
echo "|---|--:|--:|"
for name in tls nginx_tls; do
    rate() { awk -v us="$(us "$1-$name")" 'BEGIN { printf "%d", 1e6 / us }'; }
    echo "| ${name/tls/weir} | $(rate new) | $(rate reuse) |" | sed 's/nginx_weir/nginx/'
done
