# `make demo` and `make test` are the two to know; README.md says more.

HOST := $(shell rustc -vV | sed -n 's/^host: //p')
BINARY := target/$(HOST)/release/container-run
PREFIX ?= /usr/local
CARGO_HOME ?= $(HOME)/.cargo

SCRIPTS := .ci/run packaging/dist bats/run examples/demo.sh examples/kubernetes/validate

# Seconds.
SOAK ?= 120

.PHONY: build demo test unit bats shellcheck lint install dist soak bench clean

# Static, so that it runs in any image, also in one FROM scratch. The target is named although it
# is the host's own: only so do the flags leave procedural macros alone, which cannot be static.
# No folder of this machine is named in it: built elsewhere, it is the same to the byte.
BUILD := RUSTFLAGS='-C target-feature=+crt-static --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/container-run' \
  cargo build --release --locked --target $(HOST)

build:
	$(BUILD)

demo: build
	CONTAINER_RUN_BINARY=$(abspath $(BINARY)) examples/demo.sh

test: unit bats shellcheck

# The tests in containers need the static binary.
unit: build
	cargo test --locked

bats: build bats/node_modules
	CONTAINER_RUN_BINARY=$(abspath $(BINARY)) bats/run

# Pinned by version and checksum in the lock file.
bats/node_modules: bats/package-lock.json
	npm ci --silent --no-audit --no-fund --prefix bats
	touch $@

# Starts and stops, floods, crashes and orphans, all at once; prints figures.
soak: build
	CONTAINER_RUN_BINARY=$(abspath $(BINARY)) cargo run --release --locked --example soak -- $(SOAK)

# Against tini and its like, where they are installed; writes bench/ and a part of the README.
bench: build
	$(BUILD) --example stamp
	bench/run $(BINARY) $(dir $(BINARY))examples/stamp

shellcheck: build
	shellcheck $(SCRIPTS) bats/helper.bash bats/fixtures/*.sh bats/fixtures/drain/*.sh bats/fixtures/drain/*.bash
	$(BINARY) install-bpm --print | shellcheck -

lint:
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings

# What a release consists of: tarball, Debian package, checksums.
dist: build
	cargo run --quiet --locked --example manual -- target/manual
	packaging/dist $(BINARY) target/manual dist

install: build
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/container-run

clean:
	cargo clean
	rm -rf bats/node_modules dist
