#!/bin/sh
# Resolve requirements/*.in to *.txt: exact versions with hashes, for every supported Python, no addresses.
set -eu
cd "$(dirname "$0")/../requirements"
lock() { uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate "$@"; }

lock --python-version 3.10 dev.in -o dev.txt
for name in runtime airflow bench cover dagster docs java postgres readers virtualenv spark-4.0 spark-4.1 spark-4.2; do
    case $name in runtime) with="-c dev.txt" ;; *) with="" ;; esac
    lock --python-version 3.10 $with "$name.in" -o "$name.txt"
done
lock --python-version 3.11 spark-4.3.in -o spark-4.3.txt
