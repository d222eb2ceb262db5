# SPDX-License-Identifier: Apache-2.0
# Every target runs in the project's virtual environment; .ci/venv makes it when it is not there yet.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Only lanes (below) run side by side.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

COLLECTION := collections/ansible_collections/karmada/installer
LAB := lab/lab
LAB_UP := --cluster host --cluster member1 --cluster member2 --images karmada:v1.18.2

# Scenarios of `make test`, in this order: one for each thing that only a cluster shows. `make test-full` adds every other one.
SCENARIOS ?= demo run_check_mode run_convergence run_interrupted run_bad_input pods_cluster_ip pods_least_rights \
	members_pull hosts_plain lab_recovery
SCENARIOS_FULL ?= $(SCENARIOS) \
	$(filter-out $(SCENARIOS),$(patsubst molecule/%/molecule.yml,%,$(sort $(wildcard molecule/*/molecule.yml))))
# These make a lab of their own; all others take the clusters of the lab for themselves.
OWN_LAB := $(patsubst molecule/%/molecule.yml,%,$(shell grep -l KARMADA_LAB_STATE molecule/*/molecule.yml))
# More arguments for pytest, as in: make unit PYTEST_ARGS='-k etcd -x'. Like GO_ON, not out of the environment: what somebody
# has exported once would narrow every run after it.
PYTEST_ARGS :=
GO_ON :=
# More arguments for what `make publishable` runs, in the same way: SANITY_ARGS='--core 2.19 --test pylint' looks at less.
SANITY_ARGS :=
PYTHON ?= python3

# The checkout's own settings and collection, whatever the user has at home.
export PYTHON
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/collections
# Outside of the checkout: scenarios work there, and one of them must not be able to see the checkout.
export ANSIBLE_HOME := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/karmada-installer/ansible

IN_VENV := .ci/venv
# Runs a check or a scenario and leaves a record of it. With GO_ON, what has passed on this tree is not run again.
RECORD = $(IN_VENV) python tools/evidence run $(if $(GO_ON),--go-on)
# Where the record of tests looks for those that failed, to name them at the end of a long output.
failures_of = --junitxml=build/diagnostics/$(1)/tests.xml

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":[^#]*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: venv
venv: ## the virtual environment with everything the other targets need; prints its path
	@$(IN_VENV)

.PHONY: requirements
requirements: ## resolves setup.cfg anew and writes versions and hashes into requirements.txt and its like; [ADD_ONLY=yes]
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/pip" install --quiet --disable-pip-version-check uv; \
	compile() { \
		{ sed '/^[^#]/,$$d' "$$1"; \
			"$$tmp/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
				$(if $(ADD_ONLY),--constraint "$$1",--upgrade) \
				--no-annotate --no-header "$${@:2}"; } >"$$tmp/$$1"; \
		cp "$$tmp/$$1" "$$1"; \
	}; \
	for extra in docs publish sanity awx old_core; do \
		$(PYTHON) -c 'import configparser as c; f = c.ConfigParser(); f.read("setup.cfg"); print(f["options.extras_require"]["'$$extra'"])' \
			>"$$tmp/$$extra.in"; \
	done; \
	compile requirements-test.txt --extra test setup.cfg; \
	compile requirements.txt --extra socks --extra backup --extra operator --constraint requirements-test.txt setup.cfg; \
	compile requirements-docs.txt --constraint requirements-test.txt "$$tmp/docs.in"; \
	compile requirements-publish.txt "$$tmp/publish.in"; \
	compile requirements-sanity.txt "$$tmp/sanity.in"; \
	compile requirements-navigator.txt --extra navigator --constraint requirements-test.txt setup.cfg; \
	compile requirements-awx.txt --no-deps "$$tmp/awx.in"; \
	compile requirements-old-core.txt "$$tmp/old_core.in"

.PHONY: needs-go
needs-go:
	@version=$$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true); \
	if [[ ! $$version =~ ^go1\.([0-9]+) || $${BASH_REMATCH[1]} -lt 21 ]]; then \
		printf '%s\n' 'This machine lacks:' \
			"  go 1.21 or newer, and has $${version:-none} (builds what runs in the lab): apt-get install golang-go" \
			'  (on Debian 12 from its backports: apt-get install -t bookworm-backports golang-go)' >&2; \
		exit 1; \
	fi

override LINTERS := lint-python lint-types lint-yaml lint-ansible lint-shell docs
.PHONY: lint $(LINTERS)
lint: ## every linter; any finding is an error
	$(RECORD) lint -- env --unset=MAKEFLAGS make --no-print-directory --keep-going $(LINTERS)

lint-python:
	$(IN_VENV) ruff check
	$(IN_VENV) ruff format --check

lint-types:
	$(IN_VENV) mypy

lint-yaml:
	$(IN_VENV) yamllint --strict .

lint-ansible:
	$(IN_VENV) ansible-lint

# Shell scripts are known by their first line. A template is none before it is rendered.
lint-shell:
	{ git ls-files -z -co --exclude-standard -- '*.sh'; \
		git grep -zlI --untracked -E '^#!.*\b(ba|da)?sh$$' -- ':!*.j2' || true; } | sort -zu | $(IN_VENV) xargs -0r shellcheck

.PHONY: unit
unit: ## tests of the engine and of the lab's own logic; need no cluster
	$(if $(PYTEST_ARGS),$(IN_VENV),$(RECORD) unit --) pytest -n auto $(call failures_of,unit) $(PYTEST_ARGS)

.PHONY: reference
reference: ## writes docs/reference/ from the schema, the rights that preflight asks for, and the tests of fields
	PYTHONPATH=collections:operator $(IN_VENV) python tools/generate_reference.py
	PYTHONPATH=bench:molecule/shared/tools $(IN_VENV) python -m karmada_bench render >/dev/null

.PHONY: awx
awx: ## writes examples/awx/controller/, the objects of AWX, from playbooks and argument specifications
	$(IN_VENV) python tools/generate_awx.py

.PHONY: manifests
manifests: needs-go ## writes operator/deploy/, which is what the operator's chart renders
	$(IN_VENV) python tools/operator_manifests.py

# In an environment of its own, of a few pure Python packages: who writes a page needs no other. Nothing is fetched by the
# site, and nothing is fetched to build it but these packages, once.
.PHONY: docs
docs: ## the documentation as a site that can be searched, in build/site; any dead link is an error
	NO_MKDOCS_2_WARNING=1 REQUIREMENTS=requirements-docs.txt $(IN_VENV) mkdocs build --quiet --strict

override CONTRACT := $(COLLECTION)/tests/contract
.PHONY: contract
contract: needs-go ## what we render against the real programs; builds them the first time
	$(IN_VENV) $(LAB) prepare
	$(IN_VENV) $(LAB) artifacts
	$(if $(PYTEST_ARGS),$(IN_VENV),$(RECORD) contract --) pytest $(if $(findstring $(CONTRACT),$(PYTEST_ARGS)),,$(CONTRACT)) $(call failures_of,contract) $(PYTEST_ARGS)

.PHONY: lock
lock: ## records checksums of every known release from its publishers; [VERSION=v1.18.2] [WHAT=crds|files|images|modules]
	PYTHONPATH=collections:lab $(IN_VENV) python tools/lock_artifacts.py $(or $(WHAT),all) $(or $(VERSION),all) $(SOURCE)

.PHONY: flags
flags: needs-go ## records which flags and feature gates the programs of each known release have
	PYTHONPATH=collections $(IN_VENV) python tools/record_program_flags.py

.PHONY: collection
collection: ## the collection's artifact, in build/
	$(IN_VENV) python tools/changelog.py
	$(IN_VENV) python tools/sanity_ignores.py
	$(IN_VENV) ansible-galaxy collection build --force --output-path build $(COLLECTION)

# In environments of their own, as the site is: the tools are large, and nothing else needs them. Sanity runs with Python 3.11,
# 3.12 and 3.13, which have ansible-core 2.19, 2.20 and 2.21. Without SANITY_ARGS it leaves a record.
.PHONY: publishable
publishable: collection ## what Galaxy asks of the artifact: its importer, sanity, changelog, documentation, execution environment
	$(if $(SANITY_ARGS),,$(RECORD) publishable --) env REQUIREMENTS=requirements-publish.txt $(IN_VENV) python tools/publishable.py $(SANITY_ARGS)

.PHONY: lab
lab: needs-go
	$(IN_VENV) $(LAB) prepare
	$(IN_VENV) $(LAB) up $(LAB_UP)

.PHONY: demo
demo: lab ## a lab of three clusters on this machine, and Karmada installed in it
	$(IN_VENV) molecule/demo/run

.PHONY: down
down: ## removes the lab
	$(IN_VENV) $(LAB) down

# One scenario by hand: make scenario-NAME
# One that was killed is begun anew: molecule would take what it left for made.
$(patsubst %,scenario-%,$(filter-out $(OWN_LAB),$(SCENARIOS_FULL))): lab
scenario-%: needs-go
	$(IN_VENV) $(LAB) prepare
	rm -f $(ANSIBLE_HOME)/tmp/molecule.*.$*/state.yml
	$(RECORD) $* -- molecule test -s $*

# Every program that tests run, built before the first of them: a build gives way to all else, and would starve beside lanes.
.PHONY: programs
programs: needs-go
	$(IN_VENV) $(LAB) prepare
	$(IN_VENV) $(LAB) artifacts
	$(IN_VENV) python tools/helm.py version >/dev/null

# Lanes: unit tests, what takes the lab of three clusters, contract tests and what makes a lab of its own, and linters, which what
# Galaxy asks for follows. Three run side by side, which is what two cores bear; the last one begins when the first of the others
# has ended. In a lane one part follows the other, and the output of each is shown when it has ended. $(1): the scenarios; $(2):
# yes to go on where a run was stopped; $(3): the checks.
override CHECKS := lint unit contract
override CHECKS_FULL := $(CHECKS) publishable
LANES := lane-unit lane-clusters lane-own-labs lane-lint
SIDE_BY_SIDE_AT_ONCE := 3
run_in_lanes = $(MAKE) --no-print-directory --keep-going --jobs=$(SIDE_BY_SIDE_AT_ONCE) --output-sync=target SIDE_BY_SIDE=yes \
	GO_ON=$(2) PYTEST_ARGS= SANITY_ARGS= LANE_SCENARIOS='$(1)' LANE_CHECKS='$(3)' $(LANES) || \
	{ $(IN_VENV) python tools/evidence failed $(3) $(1); exit 1; }
in_lane = $(if $(1),+@$(MAKE) --no-print-directory --keep-going SIDE_BY_SIDE= $(1))

.PHONY: $(LANES)
lane-unit:
	$(call in_lane,$(filter unit,$(LANE_CHECKS)))

lane-lint:
	$(call in_lane,$(filter lint,$(LANE_CHECKS)) $(filter publishable,$(LANE_CHECKS)))

lane-clusters:
	$(call in_lane,$(patsubst %,scenario-%,$(filter-out $(OWN_LAB),$(LANE_SCENARIOS))))

lane-own-labs:
	$(call in_lane,$(filter contract,$(LANE_CHECKS)) $(patsubst %,scenario-%,$(filter $(OWN_LAB),$(LANE_SCENARIOS))))

# Passed is what has a record of it, on the tree as it is now.
STARTED := $(shell date --utc +%Y-%m-%dT%H:%M:%SZ)
.PHONY: test
test: needs-go lab programs ## what continuous integration runs: lint, unit, contract and the main scenarios
	+@$(call run_in_lanes,$(SCENARIOS),,$(CHECKS))
	@$(IN_VENV) python tools/evidence longest $(CHECKS) $(SCENARIOS)
	@$(IN_VENV) python tools/evidence passed --since=$(STARTED) $(CHECKS) $(SCENARIOS)
	@$(IN_VENV) python tools/evidence total --since=$(STARTED) test $(CHECKS) $(SCENARIOS)

.PHONY: test-full
test-full: export KILLS ?= 20
test-full: export UNINSTALL_KILLS ?= 10
test-full: export RESTARTS ?= 10
test-full: export CANCELS ?= 20
test-full: export TEST_ALL_RELEASES := true
test-full: export TEST_NAVIGATOR := true
test-full: export AWX_TEMPLATES ?= all
test-full: export INVENTORY_CONTROL_PLANES ?= 100
test-full: export DRIFT_WORKS ?= 1000
test-full: export ETCD_HISTORIES ?= 10000
test-full: export ETCD_LOSSES ?= 20
test-full: export ETCD_CHANGES ?= all
test-full: export ETCD_MOMENTS ?= 1
test-full: export LEADER_MOMENTS ?= 0
test-full: export RESTORE_MOMENTS ?= 1
test-full: export UNINSTALL_VARIANTS ?= all
test-full: export MOVES ?= all
test-full: export MANY ?= 8
test-full: needs-go lab programs ## the same with every scenario and publishable; goes on where it was stopped
	+@$(call run_in_lanes,$(SCENARIOS_FULL),yes,$(CHECKS_FULL))
	@$(IN_VENV) python tools/evidence longest $(CHECKS_FULL) $(SCENARIOS_FULL)
	@$(IN_VENV) python tools/evidence passed $(CHECKS_FULL) $(SCENARIOS_FULL)
	@$(IN_VENV) python tools/evidence total --since=$(STARTED) test-full $(CHECKS_FULL) $(SCENARIOS_FULL)

.PHONY: evidence
evidence: ## writes docs/reference/capabilities.md: what has passed when, on which tree, by molecule/records/
	$(IN_VENV) python tools/evidence render

# Rounds of `make bench`; every figure is the median of them.
BENCH_ROUNDS := $(or $(ROUNDS),3)
.PHONY: bench
bench: programs ## this collection beside karmadactl, on a lab of its own; writes bench/ and docs/reference/benchmarks.md
	$(IN_VENV) python molecule/operator_in_pods/image.py --base
	PYTHONPATH=bench:collections:molecule/shared/tools $(IN_VENV) python -m karmada_bench run --rounds $(BENCH_ROUNDS)

.PHONY: clean
clean: ## removes what these targets left in this checkout; the lab and the virtual environment stay
	rm -rf build .ansible .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis ./*.egg-info
	find bench collections lab molecule operator tools -name __pycache__ -type d -prune -exec rm -rf {} +
