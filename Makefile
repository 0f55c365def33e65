# `make demo` and `make test` set up everything they need: Python 3.11+ and make are enough.
PYTHON ?= python3
# Children would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
# Modules are compiled when they are first imported: most never are.
INSTALL := $(BIN)/python requirements/install.py
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
# Every package and build tool, pinned with hashes for all supported interpreters; `make lock` makes them again.
LOCKED := --require-hashes --requirement requirements
EDITABLE := --no-deps --no-build-isolation --editable .
# As many processes as cores; a machine with many gains nothing from more than eight.
PYTEST := -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: demo test test-all test-oldest test-newest lint types unit slow wheel docs readme lines allowances lock test-frameworks test-slurm \
	pictures clean another-python

# Another PYTHON, another environment.
VERSION := $(shell $(PYTHON) -c 'import sys; print(sys.version)' 2>&1)
ifneq ($(VERSION),$(shell cat $(VENV)/.python 2>/dev/null))
$(RUNTIME): another-python
endif

$(RUNTIME): pyproject.toml requirements/runtime.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "forerun needs Python 3.11 or newer")'
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) $(VENV) $(LOCKED)/runtime.txt
	$(INSTALL) $(VENV) $(EDITABLE)
	@$(BIN)/python -c 'import sys; print(sys.version)' > $(VENV)/.python
	@touch $@

$(STAMP): $(RUNTIME) requirements/dev.txt
	$(INSTALL) $(VENV) $(LOCKED)/dev.txt
	@touch $@

# What pyproject.toml asks for, resolved anew: one file for every interpreter, one version of a package in both files.
LOCKER := .venv-lock
COMPILE := $(LOCKER)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-annotate --custom-compile-command "make lock" --no-config
lock:
	$(PYTHON) -m venv --clear $(LOCKER)
	$(LOCKER)/bin/python $(PIP) --upgrade "pip>=25.1"
	$(LOCKER)/bin/python $(PIP) --group lock
	$(COMPILE) pyproject.toml --group backend --group dev --group docs --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --extra ray --group backend --constraint requirements/dev.txt --output-file requirements/runtime.txt
	$(COMPILE) --group lock --output-file requirements/uv.txt

demo: $(RUNTIME)
	$(BIN)/forerun search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192
	@echo "Call it as $(BIN)/forerun, or: . $(BIN)/activate"

# Types and the wheel take one core, so that tests run beside them.
test: lint
	$(MAKE) --jobs 3 types wheel unit

# Everything: tests marked slow as well, properties on all of their examples, and the whole suite on the wheel.
test-all: UNIT := --hypothesis-profile full
test-all: ON_WHEEL := tests
test-all: lint types unit wheel

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell docs public search simulator spaces *.md Makefile pyproject.toml

types: $(STAMP)
	$(BIN)/mypy

UNIT := -m "not slow"
unit: $(STAMP)
	$(BIN)/python $(PYTEST) $(UNIT)

# What `unit` leaves out.
slow: $(STAMP)
	$(BIN)/python $(PYTEST) -m slow

# The editable install hides missing packages and data files; the built wheel does not. What both depend on is
# installed once: a path file adds it to the wheel's environment, and of that path no other path file is read, so that
# the editable install stays out of it. Only what an installed package can get wrong is tested on it.
WHEEL := $(VENV)-wheel
ON_WHEEL := --numprocesses 0 tests/test_packaging.py tests/test_installed.py
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
wheel: $(STAMP)
	rm -rf build dist $(WHEEL)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	$(PYTHON) -m venv --without-pip $(WHEEL)
	$(INSTALL) $(WHEEL) --no-deps dist/*.whl
	$(BIN)/python -c '$(PURELIB)' > "$$($(WHEEL)/bin/python -c '$(PURELIB)')/dependencies.pth"
	$(WHEEL)/bin/python -c 'import sys, forerun.search as it; sys.exit(sys.prefix not in it.__file__ and it.__file__)'
	$(WHEEL)/bin/python $(PYTEST) $(ON_WHEEL)

# The lower bounds of pyproject.toml are true, and so is what came out since: the suite with the oldest versions that it
# allows, and with the newest there are, in environments of their own. PYTHON chooses the interpreter of both. What the
# newest libraries warn of is a list at the end of the run, not a failure.
BOUNDS := import re, tomllib; \
	asked = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]; \
	print(*("==".join(re.match(r"([\w-]+)>=([\d.]+)", one).groups()) for one in asked), sep="\n")
test-oldest:
	$(PYTHON) -m venv --clear .venv-oldest
	$(PYTHON) -c '$(BOUNDS)' > .venv-oldest/constraints.txt
	.venv-oldest/bin/python $(PIP) --upgrade "pip>=25.1"
	.venv-oldest/bin/python $(PIP) --constraint .venv-oldest/constraints.txt --editable '.[ray]' hypothesis pandas pytest pytest-xdist
	.venv-oldest/bin/python $(PYTEST) $(UNIT)

test-newest:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python $(PIP) --upgrade pip
	.venv-newest/bin/python $(PIP) --upgrade --upgrade-strategy eager --pre --editable . --group dev
	.venv-newest/bin/python $(PYTEST) -W default $(UNIT)

# The documentation as a site in site/: examples run, links checked, every warning an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html"

# Allowed violations of lint rules that are gone: the lists only shrink.
allowances: $(STAMP)
	$(BIN)/python tests/allowances/shrink.py

# Lines of Python by package and by room: what a change adds, it pays for.
lines:
	@for folder in public search simulator spaces search/*/ simulator/*/ spaces/*/ tests benchmarks; do \
		count=$$(find $$folder -name '*.py' -exec cat {} + | wc -l); \
		[ $$count -eq 0 ] || printf '%7d %s\n' $$count $${folder%/}; \
	done

# The generated parts of README.md: the answer of its command and the newest measurements.
readme: $(STAMP)
	$(BIN)/python docs/readme.py

# The frameworks' own parsers read what forerun writes, in an environment of their own: torch alone has gigabytes.
# Megatron-Bridge without what it depends on, which needs a GPU: its configuration does not.
# torchtitan twice: 0.2.2 is the last that reads TOML, 0.3.0 the first that is configured in Python. Megatron twice: the
# newest, whose wheel has Megatron-LM's own parser, says that it needs Python 3.12.
FRAMEWORKS := .venv-frameworks
PARSERS := tests/search/test_formats_real_parsers.py
test-frameworks:
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python $(PIP) --upgrade "pip>=25.1"
	$(FRAMEWORKS)/bin/python $(PIP) "torch==2.13.0"
	$(FRAMEWORKS)/bin/python $(PIP) --editable . --group frameworks
	$(FRAMEWORKS)/bin/python $(PIP) --no-deps "megatron-bridge==0.3.1"
	$(FRAMEWORKS)/bin/python $(PIP) --no-deps --ignore-requires-python "axolotl==0.19.0" "llamafactory==0.9.5" "maxtext==0.2.5"
	$(FRAMEWORKS)/bin/python $(PIP) --no-deps "peft==0.21.2" "datasets==5.2.0" "trl==1.16.0"
	$(FRAMEWORKS)/bin/python $(PIP) "jax==0.10.2" "gcsfs==2026.10.1"
	$(FRAMEWORKS)/bin/python -m pytest $(PARSERS)
	$(FRAMEWORKS)/bin/python -m benchmarks.real_parsers --with
	$(FRAMEWORKS)/bin/python $(PIP) "torchtitan==0.3.0"
	$(FRAMEWORKS)/bin/python -m pytest $(PARSERS) -k torchtitan
	$(FRAMEWORKS)/bin/python -m benchmarks.real_parsers --only torchtitan
	$(FRAMEWORKS)/bin/python $(PIP) --no-deps --ignore-requires-python "megatron-core==0.19.2" "megatron-bridge==0.6.2"
	$(FRAMEWORKS)/bin/python -m pytest $(PARSERS) -k "megatron or hybrid"
	$(FRAMEWORKS)/bin/python -m benchmarks.real_parsers --with --only megatron-lm
	$(FRAMEWORKS)/bin/python -m benchmarks.real_parsers --with --only nemo

# Exported batch files under a real Slurm of two nodes on this machine; needs root, and Debian's slurm-wlm and munge.
test-slurm: $(STAMP)
	FORERUN_SLURM=1 $(BIN)/python -m pytest tests/search/test_launch_on_slurm.py

# Pictures of the report for the documentation; needs chromium and chromedriver.
pictures: $(STAMP)
	FORERUN_PICTURES=docs/pictures $(BIN)/python -m pytest tests/search/test_report_in_a_browser.py -k pictures

clean:
	rm -rf .venv* build dist *.egg-info
