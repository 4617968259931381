# The doors for people. Each does its own set-up: a fresh Debian machine with a Rust toolchain is enough.

SHELL := /bin/bash
# Where rustup puts cargo, for shells that have not been told.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run test lint

help: ## what there is
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 14

run: ## measure weir on this machine, in about a minute: a headline, and where the report is
	@scripts/setup.sh cargo cc
	@cargo build --release --locked
	@target=$${CARGO_TARGET_DIR:-target} && "$$target/release/weir" lab experiments/quick.toml

test: lint ## all tests, with a real PostgreSQL and a real MariaDB
	@scripts/setup.sh cc postgresql mariadb
	@ledger=$$(mktemp) && trap 'rm -f "$$ledger"' EXIT && \
	WEIR_TEST_LEDGER=$$ledger cargo test --locked && \
	sort -u "$$ledger" | awk '{ ran[$$1]++; if (!known[$$1, $$2]++) versions[$$1] = versions[$$1] " " $$2 } END { \
		if (!ran["PostgreSQL"]) { print "error: no test ran against PostgreSQL" > "/dev/stderr"; exit 1 } \
		if (!ran["MariaDB"]) { print "error: no test ran against MariaDB" > "/dev/stderr"; exit 1 } \
		printf "%d tests ran against PostgreSQL%s, %d against MariaDB%s\n", \
			ran["PostgreSQL"], versions["PostgreSQL"], ran["MariaDB"], versions["MariaDB"] }'

lint: ## form and clippy
	@scripts/setup.sh cargo cc rustfmt clippy
	cargo fmt --check
	cargo clippy --locked --quiet --all-targets -- -D warnings
