# The main commands. Each installs what it needs: a fresh Debian machine with a Rust toolchain is enough.

SHELL := /bin/bash
# Where rustup puts cargo, for shells that have not been told.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Where `make bench` puts what it measured: one directory a day.
RECORD := records/$(shell date +%F)
BENCHES := $(addprefix $(RECORD)-,peers batching parts scale)

.PHONY: help run bench truth test test-long fuzz deb lint

help: ## what there is
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 14

run: ## build weir and measure it on this machine, in a minute after the build: answers, and where the report is
	@scripts/setup.sh cargo cc
	@cargo build --release --locked
	@target=$${CARGO_TARGET_DIR:-target} && "$$target/release/weir" lab experiments/quick.toml

bench: ## measure weir beside other servers, beside itself without batches, and its parts, into records/, in less than an hour
	@for record in $(BENCHES); do [ ! -e "$$record" ] || \
		{ echo "error: $$record is there already; move it away, and run this again" >&2; exit 1; }; done
	@scripts/setup.sh cargo cc nginx redis webdis etcd wrk valgrind postgresql
	@cargo build --release --locked --bin weir --example floor && cargo bench --locked --no-run
	@target=$${CARGO_TARGET_DIR:-target} && "$$target/release/weir" lab experiments/peers.toml --out $(RECORD)-peers
	@target=$${CARGO_TARGET_DIR:-target} && "$$target/release/weir" lab experiments/batching.toml --out $(RECORD)-batching
	@mkdir $(RECORD)-parts && set -o pipefail && \
		cargo bench --locked --bench micro | tee $(RECORD)-parts/micro.txt && \
		cargo bench --locked --bench system | tee $(RECORD)-parts/system.txt

truth: ## measure targets whose limit is imposed, and score the lab's verdicts on them, into weir-results/truth, in about an hour and a half
	@[ ! -e weir-results/truth ] || { echo "error: weir-results/truth is there already; move it away, and run this again" >&2; exit 1; }
	@scripts/setup.sh cargo cc postgresql
	@cargo build --release --locked
	@target=$${CARGO_TARGET_DIR:-target} && for file in experiments/truth/*.toml; do \
		"$$target/release/weir" lab "$$file" --out weir-results/truth/$$(basename "$$file" .toml) || \
			echo "$$file: not all of it was measured; the score says what is missing" >&2; done; \
		cargo run --quiet --package xtask -- score weir-results/truth --markdown weir-results/truth/score.md

# Most tests wait: for servers, windows and disks. So there are more threads than cores.
test: lint ## all tests, with a real PostgreSQL, a real MariaDB, a real Cassandra, proxies, and the peers of experiments/peers.toml
	@scripts/setup.sh cc openssl postgresql mariadb nginx haproxy redis webdis etcd patroni chromium prometheus systemd python varnish curl node go debian-trees cassandra
	@ledger=$$(mktemp) && trap 'rm -f "$$ledger"' EXIT && \
	WEIR_TEST_LEDGER=$$ledger RUST_TEST_THREADS=$$((2 * $$(nproc) + 1)) cargo test --workspace --features weir/cassandra --locked --no-fail-fast && \
	sort -u "$$ledger" | awk '{ ran[$$1]++; if (!known[$$1, $$2]++) versions[$$1] = versions[$$1] " " $$2 } END { \
		if (!ran["PostgreSQL"]) { print "error: no test ran against PostgreSQL" > "/dev/stderr"; exit 1 } \
		if (!ran["MariaDB"]) { print "error: no test ran against MariaDB" > "/dev/stderr"; exit 1 } \
		if (!ran["Cassandra"]) { print "error: no test ran against Cassandra" > "/dev/stderr"; exit 1 } \
		if (ran["untested"]) print "not tested on this machine:" versions["untested"]; \
		printf "%d tests ran against PostgreSQL%s, %d against MariaDB%s, %d against Cassandra%s\n", \
			ran["PostgreSQL"], versions["PostgreSQL"], ran["MariaDB"], versions["MariaDB"], ran["Cassandra"], versions["Cassandra"] }'

test-long: ## the tests that take minutes: all reports' experiments, MySQL in place of MariaDB, servers killed 20 times, power losses, failing calls and hostile connections by the thousand
	@scripts/setup.sh cc postgresql mariadb mysql nginx haproxy etcd patroni python cassandra node go javac
	@[ ! -e /var/cache/weir/mysql/complete ] || PATH="/var/cache/weir/mysql/bin:$$PATH" cargo test -p weir --features cassandra --locked --test it -- \
		mariadb mysql atomic:: shards:: durability:: events:: user_table:: user_table_rows:: transfer:: --skip a_mariadb_without_tls
	@cargo test --workspace --features weir/cassandra --locked -- --ignored --skip cassandra_cluster:: --skip failover::
	@WEIR_TEST_LONG=1 cargo test --workspace --features weir/cassandra --locked --test it -- --include-ignored cassandra:: cassandra_cluster:: backup:: standby:: proxies::no_request many_keys:: transfer:: durability:: failover:: power_loss:: io_errors:: full_disk:: memory::hostile_connections openapi:: events:: atomic::

fuzz: ## give bytes to everything that reads them, TARGET=all for SECONDS=60 each, and say what coverage was reached
	@scripts/setup.sh cargo cc c++
	@fuzz/run $(or $(TARGET),all) $(or $(SECONDS),60)

deb: ## a Debian package of weir without the lab, into target/debian
	@scripts/setup.sh cargo cc
	@cargo build --release --locked --package weir --no-default-features
	@target=$${CARGO_TARGET_DIR:-target} && packaging/debian/build.sh "$$target/release/weir" "$$target/debian"

lint: ## form, clippy, and no files that use each other in a circle
	@scripts/setup.sh cargo cc rustfmt clippy
	cargo fmt --check
	cargo clippy --workspace --features weir/cassandra --locked --quiet --all-targets -- -D warnings
	cargo clippy --package weir --no-default-features --locked --quiet -- -D warnings
	cargo run --locked --quiet --package xtask -- cycles
