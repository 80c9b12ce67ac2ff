# Two commands matter: `make run` and `make test`. Both set themselves up; nothing else is needed first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
STAMP  := $(VENV)/.ready
SERVED := $(VENV)/.served
PEERS  := .venv-peers/.ready
# How many processes run the tests: more than there are cores, because tests wait for servers and for other processes. And
# for how many minutes they soak.
WORKERS ?= 6
MINUTES ?= 60
# To see that every benchmark works, without its figures: make bench-full PART=100.
PART ?= 1
BENCH = HOLDFAST_BENCH_PART=$(PART) $(BIN)/python -m bench
PYTEST  = $(BIN)/python -m pytest --forks $(WORKERS) -q
# Tests start Python often. Where the environment forbids to keep what was compiled, each start would compile it all anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test quick everywhere soak faults check lint types layers tests chromium browser screenshots bench bench-full bench-check peers prove langgraph-store-tests dist reference format constraints clean

help:            ## what can be done here
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: $(STAMP)  ## a virtual environment with everything needed

# Both stamps stand for the same virtual environment: the small one has what `make run` needs, the other what a developer needs.
# uv installs in seconds what pip installs in minutes. It does not read pip's settings, so it is told which index pip uses;
# where uv cannot be had, or fails, pip installs everything.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Holdfast needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing '.[$(1)]' into $(VENV) ..."
	@index=$$($(PIP) config list | sed -n "s/.*\.index-url='\(.*\)'/\1/p" | tail -1); \
	{ $(PIP) install --quiet --retries 1 --timeout 15 -c constraints.txt uv && \
		$(BIN)/uv pip install --python $(BIN)/python $${index:+--default-index "$$index"} -c constraints.txt -e '.[$(1)]'; } || \
	{ echo "uv did not install it; pip does, which takes minutes."; \
		$(PIP) install --progress-bar on -c constraints.txt -e '.[$(1)]'; }
endef

$(STAMP): pyproject.toml constraints.txt
	$(call make_venv,dev)
	@touch $(STAMP) $(SERVED)

$(SERVED): pyproject.toml constraints.txt
	$(call make_venv,server)
	@touch $(SERVED)

run: $(SERVED)   ## serve the API on the embedded engine, and say where (a tour: holdfast demo)
	@$(BIN)/holdfast serve

test: check      ## everything that must hold before a change lands

quick: lint      ## style, and the tests of core, recall, memory and requirements on SQLite; for the inner loop
	$(PYTEST) --quick tests/core tests/recall tests/memory tests/requirements

faults: $(STAMP) ## put each deliberate fault into the code, and write into docs/promises.md what finds it; a quarter of an hour
	PYTHONPATH=tests:. $(BIN)/python -m simulation.faults

check:           ## ruff, mypy, import layers, tests; all but the first at the same time
	@$(MAKE) --no-print-directory -j lint chromium
	@$(MAKE) --no-print-directory -j types layers tests

lint: $(STAMP)   ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

layers: $(STAMP) ## import-linter: arrows point down only
	$(BIN)/lint-imports

tests: $(STAMP) chromium  ## the tests alone
	$(PYTEST)

chromium:        # the browser that the console is tried in is installed, where it may be
	@$(PYTHON) tests/chromium.py

browser: $(STAMP) chromium  ## the console in a real browser; a part of the tests
	$(PYTEST) tests/browser

screenshots: $(STAMP) chromium  ## draw the pictures of the console in docs/img anew
	$(BIN)/python tests/browser/screenshots.py

everywhere: $(STAMP)  ## the tests, all of them on every engine
	$(PYTEST) --every-engine

soak: $(STAMP)   ## more examples, more kills, larger stores, on the disk; ends by itself after MINUTES=60
	$(PYTEST) --soak $(MINUTES)

bench: $(STAMP) $(PEERS)  ## Holdfast beside its peers, under ten minutes; writes a section of docs/benchmarks.md
	$(BENCH).side_by_side

bench-full: bench  ## the same, Holdfast at 100,000 facts, and every other section; over an hour on an idle machine
	$(BENCH).side_by_side --growth
	$(BENCH)

bench-check: $(STAMP)  ## are the latency targets met? a minute or two; fails loudly where one is missed
	$(BIN)/python -m bench --check

peers: $(PEERS)  ## an environment with the systems that Holdfast is compared with, as bench/peers.txt pins them

$(PEERS): bench/peers.txt $(STAMP)
	$(PYTHON) -m venv .venv-peers
	@index=$$($(PIP) config list | sed -n "s/.*\.index-url='\(.*\)'/\1/p" | tail -1); \
	$(BIN)/uv pip install --python .venv-peers/bin/python $${index:+--default-index "$$index"} -r bench/peers.txt || \
		.venv-peers/bin/python -m pip install -r bench/peers.txt
	@touch $(PEERS)

prove: $(STAMP) $(PEERS)  ## is what was deleted forgotten, here and by others? minutes; writes docs/forgetting.md
	$(BIN)/python -m bench.proof

langgraph-store-tests: $(STAMP)  ## fetch the tests that LangGraph publishes for its stores, and run them on ours
	$(BIN)/python -m bench.langgraph.store_tests

dist: $(STAMP)   ## build the wheel and the sdist, install the wheel into an empty environment, and follow the README there
	$(BIN)/python tests/dist.py

reference: $(STAMP)  ## rewrite the generated pages of docs/reference, and the figures of ARCHITECTURE.md
	@for page in cli settings errors metrics audit rest mcp; do $(BIN)/python -m bench.pages.reference $$page > docs/reference/$$page.md; done
	@$(BIN)/python -m bench.pages.dashboard > docs/dashboard.json
	@$(BIN)/python -m bench.pages.client_verbs > src/holdfast/client.json.new && mv src/holdfast/client.json.new src/holdfast/client.json
	@$(BIN)/python -m bench.pages.house --write > /dev/null

format: $(STAMP) ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

constraints: $(STAMP)  ## pin what is installed now as the tested versions
	@{ echo "# The versions the tests ran with; made by 'make constraints'."; \
		$(PIP) freeze --exclude-editable; } > constraints.txt

clean:           ## remove what setup and the tools made
	rm -rf $(VENV) .venv-peers .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
