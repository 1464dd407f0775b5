# Widen. Needs make, Python 3.10 or later and pip; everything else is fetched into .work/ at the first call.

PYTHON ?= python3
WORK   := .work
VENV   := $(WORK)/venv
RUN    := $(VENV)/bin/python
TESTS  ?= tests
ARGS   ?=
JOBS   ?= 2

# Spark looks its own host name up otherwise, which many containers cannot resolve.
export SPARK_LOCAL_IP ?= 127.0.0.1
# Each of the many processes of a run would otherwise compile the modules that it imports anew.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(WORK)/pycache
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

WITH_JAVA = JAVA_HOME="$$($(PYTHON) tools/java.py)" && export JAVA_HOME && export PATH="$(CURDIR)/$(VENV)/bin:$$PATH" &&
PYTEST    = $(WITH_JAVA) $(RUN) -m pytest -p no:cacheprovider
CARGO    ?= cargo
IN_CRATE = CARGO_TARGET_DIR=$(CURDIR)/$(WORK)/cargo
# Each process starts a Spark of its own, about 2 GB. A test that hangs fails, and names itself.
PARALLEL  = -n $(JOBS) --dist worksteal --timeout 900

.PHONY: help demo demo-iceberg test test-fast simulate lint wheel interop bench matrix real real-data setup lock clean fuzz
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: setup ## three days of drifting orders into one table, and the report
	@$(WITH_JAVA) sh examples/orders/demo.sh

demo-iceberg: setup ## the same three days into an Iceberg table
	@$(WITH_JAVA) sh examples/orders/demo-iceberg.sh

test: setup $(WORK)/spark-classes.stamp ## unit, spec, property, golden, architecture and Spark engine tests
	@$(PYTEST) $(PARALLEL) --durations=10 --durations-min=1 $(TESTS) --ignore=tests/interop --ignore=tests/real --ignore=tests/wheel --ignore=tests/s3 --ignore=tests/cluster --ignore=tests/kafka --ignore=tests/postgres $(ARGS)

test-fast: setup ## the tests that need neither Spark nor minutes
	@$(PYTEST) $(PARALLEL) $(TESTS) -m "not spark and not sweep" $(ARGS)

.PHONY: test-cover
test-cover: $(WORK)/cover.stamp ## the tests without Spark, and which share of the lines they run; TESTS for others
	@$(WITH_JAVA) export COVERAGE_FILE=$(WORK)/coverage && $(RUN) -m coverage run --source=src/widen -m pytest -p no:cacheprovider $(TESTS) -m "not spark and not sweep" $(ARGS)
	@COVERAGE_FILE=$(WORK)/coverage $(RUN) -m coverage report --skip-covered --sort=cover --precision=1

.PHONY: properties
PROPERTIES = $(shell grep -rl --include=test_*.py "^from hypothesis import" tests)
properties: setup ## the properties with examples that `make test` does not try: new ones in each run; EXAMPLES=5000 for more of each
	@export WIDEN_RANDOM=1 WIDEN_EXAMPLES=$(or $(EXAMPLES),1000) && $(PYTEST) $(PARALLEL) -m hypothesis $(or $(filter-out tests,$(TESTS)),$(PROPERTIES)) $(ARGS)

simulate: setup ## 20,000 runs of three writers over a store that fails; RUNS=100 for fewer
	@$(WITH_JAVA) WIDEN_SIMULATIONS=$(or $(RUNS),20000) $(RUN) -m pytest -p no:cacheprovider tests/property/test_simulation.py $(ARGS)

lint: setup ## ruff, its format, and mypy over sources, tools, benchmarks and the architecture tests
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check --quiet . || { echo "Run: $(RUN) -m ruff format ."; exit 1; }
	@$(RUN) -m mypy

.PHONY: house
house: setup ## how far one reads to follow a batch and a change of type, and the size of the modules
	@$(WITH_JAVA) PYTHONPATH=src PYSPARK_PYTHON=$(CURDIR)/$(RUN) $(RUN) tools/walk.py

wheel: setup ## install the built wheel with its extras, as users do, and run the README's first commands
	@$(PYTEST) tests/wheel $(ARGS)

interop: setup $(WORK)/spark-classes.stamp $(WORK)/jars/stamp $(WORK)/jars/rest_catalog.stamp $(WORK)/venv-4.1.stamp ## Delta Lake and Iceberg for Spark, deltalake and PyIceberg against our tables; needs Maven; WIDEN_TEST_FAULTS=1 for all cases
	@export WIDEN_TEST_SHARE=$(or $(SHARE),0/1) && $(PYTEST) $(PARALLEL) tests/interop $(ARGS)

.PHONY: readers
readers: setup $(WORK)/jars/stamp $(WORK)/venv-4.1.stamp $(WORK)/venv-readers.stamp ## ask every reader of Delta and Iceberg tables that can be installed, and write what Widen predicts from (half an hour)
	@$(WITH_JAVA) PYTHONPATH=src $(RUN) tools/readers.py $(WORK)/readers --write $(ARGS) && PYTHONPATH=src $(RUN) tools/readers_page.py

.PHONY: edges
edges: setup $(WORK)/jars/stamp $(WORK)/venv-4.1.stamp $(WORK)/venv-readers.stamp ## filters at the bounds of 10,000 values of each writer, through every reader; VALUES=1000 for fewer
	@export WIDEN_TEST_EDGES=$(or $(VALUES),10000) && $(PYTEST) tests/interop/test_lost_rows.py --timeout 7200 -s $(ARGS)

.PHONY: auto-cdc
auto-cdc: setup $(WORK)/jars/stamp $(WORK)/jars-auto-cdc/stamp ## which table format runs Spark's AUTO CDC, and 500 histories through it and through Widen; HISTORIES=100 for fewer
	@$(WITH_JAVA) PYTHONPATH=src:tests $(RUN) tools/auto_cdc.py $(or $(HISTORIES),500)

.PHONY: s3
s3: setup $(WORK)/jars-s3/stamp ## tables in S3: Spark's and our own access with one set of options, on a server of loopback
	@$(PYTEST) tests/s3 $(ARGS)

.PHONY: kafka
kafka: setup $(WORK)/jars-kafka/stamp ## topics of a Kafka broker on loopback, and the page of the guide (fetches the broker and Spark's connector)
	@$(PYTEST) tests/kafka $(ARGS)

.PHONY: postgres
postgres: setup $(WORK)/postgres.stamp ## Iceberg tables in a catalog of PostgreSQL (needs Debian's package postgresql)
	@$(PYTEST) tests/postgres $(ARGS)

.PHONY: cluster
cluster: setup $(WORK)/venv-worker.stamp ## a Spark standalone cluster of real processes whose workers do not have Widen
	@export WIDEN_WORKER_PYTHON=$(CURDIR)/$(WORK)/venv-worker/bin/python && $(PYTEST) tests/cluster $(ARGS)

.PHONY: schedulers
schedulers: $(WORK)/venv-airflow.stamp $(WORK)/venv-dagster.stamp ## the examples for Apache Airflow and Dagster, with their packages
	@for name in airflow dagster; do AIRFLOW_HOME=$(CURDIR)/$(WORK)/airflow DAGSTER_HOME= PATH="$(CURDIR)/$(WORK)/venv-$$name/bin:$$PATH" \
	  $(WORK)/venv-$$name/bin/python -m pytest -p no:cacheprovider --confcutdir=tests/schedulers -o filterwarnings= \
	  tests/schedulers/test_$$name.py $(ARGS) || exit 1; \
	done

.PHONY: image
BUILDER ?= $(firstword $(shell command -v docker podman))
image: ## build the image of examples/docker with docker or podman, and ingest a record in a container of it
	@test -n "$(BUILDER)" || { echo "Building the image needs docker or podman."; exit 1; }
	@$(BUILDER) build -f examples/docker/Dockerfile -t widen-example .
	@$(BUILDER) run --rm --entrypoint sh widen-example -c \
	  'cd && echo "{\"id\": 1}" > a.json && widen ingest a.json --into t && widen read t --json'

CORE = $(addprefix tests/engine/test_,append.py columns.py filters.py ingest.py merge.py read.py stream.py)
REBASE = $(foreach kind,datetime int96,$(foreach way,Read Write,spark.sql.parquet.$(kind)RebaseModeIn$(way)=LEGACY))
SETTINGS ?= spark.sql.caseSensitive=true,spark.sql.ansi.enabled=false,spark.sql.session.timeZone=Asia/Kolkata \
  $(subst $(SPACE),$(COMMA),$(REBASE)),spark.sql.adaptive.enabled=false,spark.sql.session.timeZone=America/St_Johns \
  spark.sql.sources.useV1SourceList=,spark.sql.session.timeZone=UTC
COMMA = ,
SPACE = $(subst x,,x x)

# The files in which `make test` asks each case in one layout; see tests/support/covering.py.
COVERED = $(shell grep -rl --include=*.py support.covering tests/engine tests/unit)

.PHONY: test-spark
test-spark: setup $(WORK)/spark-classes.stamp ## engine tests of which `make test` runs some cases: all cases, on Spark; SHARE=0/4 for a quarter of them
	@export WIDEN_TEST_ENGINE=spark WIDEN_TEST_QUICK=1 WIDEN_TEST_SHARE=$(or $(SHARE),0/1) && $(PYTEST) $(PARALLEL) $(or $(filter-out tests,$(TESTS)),$(COVERED)) $(ARGS)

.PHONY: settings
settings: setup ## the core of the engine tests with other settings of Spark's session; SETTINGS=key=value,… for others
	@for settings in $(SETTINGS); do echo "$$settings"; \
	  export WIDEN_TEST_ENGINE=spark WIDEN_TEST_SETTINGS=$$settings && $(PYTEST) $(or $(filter-out tests,$(TESTS)),$(CORE)) $(ARGS) || exit 1; \
	done

.PHONY: faults
faults: setup ## every fault that a store can have in every operation, and hundreds of killed processes
	@export WIDEN_TEST_FAULTS=1 && $(PYTEST) tests/property/test_log_faults.py tests/property/test_log_kills.py tests/property/test_load_kills.py tests/property/test_system_faults.py tests/property/test_code_mutants.py \
	  tests/property/test_sink_kills.py tests/unit/ingestion/test_queue.py tests/engine/test_killed_streams.py tests/engine/test_killed_pipelines.py \
	  tests/engine/test_faults.py tests/engine/test_kill.py tests/engine/test_flow.py tests/engine/test_connect.py \
	  tests/engine/test_iceberg_faults.py tests/engine/test_iceberg_kill.py tests/engine/test_keys_faults.py $(ARGS)

.PHONY: mutants
mutants: setup ## break the writing side in hundreds of ways, each in one verified load: the proof must notice what changes a table; STEP=20 for more
	@$(WITH_JAVA) PYTHONPATH=src:tests $(RUN) -m support.mutant_sweep all $(or $(STEP),200)

fuzz: setup ## 10,000 damaged logs and 5,000 damaged Iceberg tables: none may do more than raise an error of ours
	@export WIDEN_FUZZ_COUNT=$${WIDEN_FUZZ_COUNT:-10000} WIDEN_ICEBERG_FUZZ_COUNT=$${WIDEN_ICEBERG_FUZZ_COUNT:-5000} && \
	$(PYTEST) tests/property/test_log_fuzz.py tests/property/test_iceberg_fuzz.py $(ARGS)

real-data: $(WORK)/data/real.stamp ## fetch the public documents that `make real` reads

real: setup $(WORK)/data/real.stamp ## ingest public documents and prove that no value is lost
	@$(PYTEST) tests/real $(ARGS)

.PHONY: outputs
outputs: setup $(WORK)/spark-classes.stamp ## run the blocks of README and guide, and write what they print into the pages
	@export WIDEN_UPDATE_OUTPUTS=1 && $(PYTEST) tests/engine/test_guide.py $(ARGS)

.PHONY: docs
docs: $(WORK)/venv-docs.stamp ## build the documentation into .work/site; a link that leads nowhere is an error
	@DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(WORK)/venv-docs/bin/python -m mkdocs build --quiet --strict
	@echo "Built .work/site/index.html"

.PHONY: docs-version
docs-version: docs ## add the documentation as VERSION to the folder .work/pages, whose pages then offer all versions in it
	@$(PYTHON) tools/docs_versions.py $(WORK)/pages $(or $(VERSION),$$(sed -n 's/^__version__ = "\([0-9]*\.[0-9]*\).*/\1/p' src/widen/__init__.py))

bench: setup $(WORK)/bench.stamp $(WORK)/jars/stamp $(WORK)/jars-avro/stamp ## side by side with Spark, Delta Lake, deltalake and dlt; prints ratios
	@$(WITH_JAVA) $(RUN) bench/run.py $(ARGS)

# What Spark 4.1 has in another way than those before and after it: pipelines, and streams of and into a data source.
STREAMS = $(addprefix tests/engine/test_,data_source.py declarative_pipelines.py ingest_sink.py)

matrix: setup $(WORK)/venv-4.0.stamp $(WORK)/venv-4.1.stamp $(WORK)/venv-4.3.stamp ## the engine tests on the oldest and the newest Spark, those of streams on 4.1
	@for spark in 4.0 4.1 4.3; do \
	  case $$spark in 4.1) tests="$(STREAMS)";; *) tests=tests/engine;; esac; \
	  $(WITH_JAVA) WIDEN_TEST_ENGINE=spark PATH="$(CURDIR)/$(WORK)/venv-$$spark/bin:$$PATH" \
	    $(WORK)/venv-$$spark/bin/python -m pytest -p no:cacheprovider $$tests $(ARGS) || exit 1; \
	done

setup: $(WORK)/venv.stamp ## the virtual environment, Java, and the kernel where cargo is at hand
	@$(PYTHON) tools/java.py >/dev/null
	@if command -v $(CARGO) >/dev/null; then $(MAKE) --no-print-directory kernel || \
	  echo "The kernel is missing, so JSON is decoded more slowly; see $(WORK)/kernel.log"; \
	elif [ ! -e $(WORK)/kernel.stamp ]; then \
	  echo "cargo is missing, so the kernel is not built and JSON is decoded more slowly; see docs/kernel.md"; fi

.PHONY: kernel kernel-test
kernel: $(WORK)/kernel.stamp ## compile the native decoder of JSON into src/widen; needs cargo

kernel-test: $(WORK)/kernel.stamp ## tests, lint and format of the kernel's crate
	@cd kernel && $(IN_CRATE) $(CARGO) test --quiet --workspace --no-default-features
	@cd kernel && $(IN_CRATE) $(CARGO) clippy --quiet --workspace --all-targets -- --deny warnings
	@cd kernel && $(CARGO) fmt --all --check

.PHONY: kernel-miri kernel-fuzz
NIGHTLY ?= +nightly
SECONDS ?= 60
kernel-miri: ## the tests of both crates in Miri, which finds undefined behaviour in what they call; needs a nightly Rust with miri
	@cd kernel && $(IN_CRATE) MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) $(NIGHTLY) miri test --quiet --workspace --no-default-features

kernel-fuzz: ## any bytes for the decoder and for the proof; SECONDS for each; needs a nightly Rust and cargo-fuzz
	@for target in decode proof; do \
	  (cd kernel && $(IN_CRATE) $(CARGO) $(NIGHTLY) fuzz run $$target -- -max_total_time=$(SECONDS) -dict=fuzz/json.dict -max_len=4096 -print_final_stats=1) || exit 1; \
	done

.PHONY: setup-all
setup-all: setup $(WORK)/spark-classes.stamp $(WORK)/venv-docs.stamp $(WORK)/venv-4.1.stamp $(WORK)/jars/stamp $(WORK)/jars/rest_catalog.stamp ## what CI fetches; make -j2 for two at a time

lock: ## resolve the requirement files again (needs uv)
	@sh tools/lock.sh

clean: ## remove everything that was fetched or made
	rm -rf $(WORK) src/widen/_kernel.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(WORK)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Widen needs Python 3.10 or later; say which: make PYTHON=python3.12"; exit 1; }
	@mkdir -p $(WORK) && touch $@

$(WORK)/venv.stamp: requirements/dev.txt requirements/spark-4.2.txt pyproject.toml tools/venv.py | $(WORK)/python.stamp
	@echo "Setting up $(VENV) (the first time takes some minutes)"
	@$(PYTHON) tools/venv.py $(VENV) requirements/dev.txt requirements/spark-4.2.txt && touch $@

$(WORK)/kernel.stamp: kernel/Cargo.toml $(wildcard kernel/src/*.rs) kernel/proof/Cargo.toml $(wildcard kernel/proof/src/*.rs) \
  tools/kernel.py $(WORK)/venv.stamp
	@echo "Building the kernel (the first time takes a minute)"
	@$(IN_CRATE) CARGO=$(CARGO) $(RUN) tools/kernel.py >$(WORK)/kernel.log 2>&1 || { tail -5 $(WORK)/kernel.log; exit 1; }
	@touch $@

$(WORK)/venv-docs.stamp: requirements/docs.txt pyproject.toml tools/venv.py | $(WORK)/python.stamp
	@echo "Setting up $(WORK)/venv-docs"
	@$(PYTHON) tools/venv.py $(WORK)/venv-docs requirements/docs.txt && touch $@

$(WORK)/venv-%.stamp: requirements/dev.txt requirements/spark-%.txt pyproject.toml tools/venv.py | $(WORK)/python.stamp
	@echo "Setting up $(WORK)/venv-$*"
	@$(PYTHON) tools/venv.py $(WORK)/venv-$* requirements/dev.txt requirements/spark-$*.txt && touch $@

$(WORK)/venv-airflow.stamp $(WORK)/venv-dagster.stamp: $(WORK)/venv-%.stamp: requirements/%.txt tools/venv.py | $(WORK)/python.stamp
	@$(PYTHON) tools/venv.py --without-widen $(WORK)/venv-$* requirements/$*.txt && touch $@

$(WORK)/venv-worker.stamp: requirements/runtime.txt tools/venv.py | $(WORK)/python.stamp
	@$(PYTHON) tools/venv.py --without-widen $(WORK)/venv-worker requirements/runtime.txt && touch $@

$(WORK)/venv-readers.stamp: requirements/readers.txt tools/venv.py | $(WORK)/python.stamp
	@$(PYTHON) tools/venv.py --without-widen $(WORK)/venv-readers requirements/readers.txt && touch $@

$(WORK)/spark-classes.stamp: tools/spark_classes.py $(WORK)/venv.stamp
	@echo "Preparing Spark's classes"
	@{ $(WITH_JAVA) $(RUN) tools/spark_classes.py $(WORK)/spark-classes.jsa; } >$(WORK)/spark-classes.log 2>&1 || { cat $(WORK)/spark-classes.log; exit 1; }
	@touch $@

$(WORK)/bench.stamp: requirements/bench.txt $(WORK)/venv.stamp
	@$(RUN) -m pip install --quiet --require-hashes -r $< && touch $@

$(WORK)/postgres.stamp: requirements/postgres.txt $(WORK)/venv.stamp
	@$(RUN) -m pip install --quiet --require-hashes -r $< && touch $@

$(WORK)/cover.stamp: requirements/cover.txt $(WORK)/venv.stamp
	@$(RUN) -m pip install --quiet --require-hashes -r $< && touch $@

$(WORK)/jars/stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars && touch $@

# After the other jars: two Maven clients at a time may damage the repository that they share.
$(WORK)/jars/rest_catalog.stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp | $(WORK)/jars/stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars/rest_catalog && touch $@

$(WORK)/jars-avro/stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars-avro && touch $@

$(WORK)/jars-auto-cdc/stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars-auto-cdc && touch $@

$(WORK)/jars-s3/stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars-s3 && touch $@

$(WORK)/jars-kafka/stamp: tools/jars.py tools/jars.json $(WORK)/venv.stamp
	@$(WITH_JAVA) $(RUN) tools/jars.py jars-kafka && $(RUN) tools/jars.py jars-kafka/broker && touch $@

$(WORK)/data/real.stamp: tools/real.py tools/real.json
	@$(PYTHON) tools/real.py && touch $@
