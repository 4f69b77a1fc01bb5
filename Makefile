# The commands of the README. Each makes what it needs: a fresh machine wants Python >= 3.11.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export GOMP_SPINCOUNT := 0
export OMP_WAIT_POLICY := passive
# Python keeps what it compiles; a machine that forbids it compiles torch again in each process.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-tinker test-vllm check site reference results soak bench bench-gpu gpu-day wheel clean

demo: $(VENV)/ready
	$(BIN)/potluck demo $(ARGS)

# A process for each core and two more (tests/conftest.py says why). Tests of prose, pages, pictures
# and deployment run in .ci/run alone, or by make test ARGS="-m page". What ARGS names replaces the
# whole suite: make test ARGS="-n0 tests/cli/test_cli.py -k help".
test: ARGS ?= -m "not page"
test: $(VENV)/ready
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

# Through a real vLLM: POTLUCK_VLLM_PYTHON or POTLUCK_VLLM_URL name it, see docs/vllm.md.
test-vllm: $(VENV)/ready
	$(BIN)/python -m pytest -n0 -v -s -rs -o faulthandler_timeout=0 tests/launch/test_real_vllm.py $(ARGS)

# Through a real Tinker server: POTLUCK_TINKER_PYTHON or POTLUCK_TINKER_URL name it, see docs/tinker.md.
# The client library leaves sockets to the garbage collector, which pytest would call a failure.
test-tinker: $(VENV)/ready
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[tinker]'
	$(BIN)/python -m pytest -n0 -v -s -rs -p no:unraisableexception -o faulthandler_timeout=0 \
	  tests/launch/test_real_tinker.py $(ARGS)

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

# The site into build/site, strictly and without a network; then every link of it is checked.
site: $(VENV)/ready
	$(BIN)/python scripts/make_site.py

# docs/reference: the keys of a recipe and the metrics, from where they are declared.
reference: $(VENV)/ready
	$(BIN)/python scripts/make_reference.py

# docs/results.md, its pictures and experiments/*/RESULTS.md, from the finished cells.
results: $(VENV)/ready
	$(BIN)/potluck reproduce --render

# What breaks after minutes and not after seconds, on two cores.
soak: $(VENV)/ready
	POTLUCK_SOAK=1 $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/faults $(ARGS)
	$(BIN)/python -m pytest -n auto --hypothesis-profile=night \
	  $$(grep -rl --include='test_*.py' 'from hypothesis' tests)
	PYTHONPATH=src:tests $(BIN)/python tests/faults/soak_wire.py

bench: $(VENV)/ready
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/all.py $(ARGS)

# Where there is a GPU, and a torch for it in $(VENV).
bench-gpu: $(VENV)/ready
	$(BIN)/python benchmarks/real_round.py --scale paper $(ARGS)

# The numbers that others have published, beside ours: recipes/README.md. ARGS=--dry lists them.
gpu-day: $(VENV)/ready
	$(BIN)/python scripts/gpu_day.py $(ARGS)

# A new pip, if it can be had, finds the packages in half the time. torch by itself and first: where a
# CPU build is at hand pip takes it, and nothing larger. What is not imported need not be compiled;
# the rest is, when it is.
$(VENV)/ready: pyproject.toml experiments/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -U -c constraints.txt pip || true
	$(BIN)/python -m pip install -q --no-compile $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e '.[dev,docs]' -e ./experiments
	touch $@

clean:
	rm -rf $(VENV) build dist .cache
