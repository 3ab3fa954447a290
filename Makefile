# Everything starts from here: `make demo` runs the loop, `make test` checks it. Needs Python 3.11 or 3.12.

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
            $$p -c '$(SUPPORTED)' >/dev/null 2>&1 && { echo $$p; break; }; done)
BIN := .venv/bin
# A driver that speaks CUDA 13 or newer takes the DSL's CUDA 13 libraries; without a GPU the default will do.
EXTRAS := dev$(shell nvidia-smi 2>/dev/null | grep -qE 'CUDA Version: *(1[3-9]|[2-9][0-9])' && echo ,cu13)
# Side by side, a file each; not on a GPU machine, where tests time kernels.
WORKERS := $(shell nvidia-smi >/dev/null 2>&1 || echo --numprocesses auto --maxprocesses 4 --dist loadfile)
comma := ,
INSTALLED := .venv/.installed-$(subst $(comma),-,$(EXTRAS))
DEMO := build/demo

.PHONY: demo test site clean

demo: $(INSTALLED)  ## tune RMSNorm with a copy of the wiki, and find the lesson it wrote
	@rm -rf $(DEMO)
	$(BIN)/wiki init $(DEMO)/wiki
	$(BIN)/wiki sync --wiki $(DEMO)/wiki
	$(BIN)/kernel-agent run rmsnorm --wiki $(DEMO)/wiki --runs $(DEMO)/runs --id demo \
	    --workloads h2048-t1024,h4096-t4096,h7168-t16384 --candidates 10 --batch 5
	@title=$$($(BIN)/python -c "import json; line = open('$(DEMO)/runs/demo/lessons.jsonl').readline(); \
	    print(json.loads(line)['lesson']['title'])") && echo "$$ wiki search \"$$title\"" && \
	    $(BIN)/wiki search --wiki $(DEMO)/wiki -k 2 "$$title"

test: $(INSTALLED)  ## lint, types, tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest $(WORKERS)

site: $(INSTALLED)  ## docs and wiki as one site in site/
	$(BIN)/mkdocs build --strict

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or 3.12 found; set PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@# For its file format alone: what it depends on runs kernels and weighs hundreds of megabytes.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps flashinfer-bench
	@touch $@

clean:
	rm -rf .venv build site
