"""Errors of the system while Spark reads a source: a library before libc makes calls fail, in Java and in Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.bad_files import csv_lines, json_lines, orc_good, parquet_good
from support.covering import TRIES_ALL

LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file of the environment says "open 13" or "read 5": which calls fail for files named b., and how. */
static int fault(const char *what) {
    char text[64] = "", kind[16] = "";
    int number = 0;
    static int (*real)(const char *, int, ...) = 0;
    if (!real) real = dlsym(RTLD_NEXT, "open");
    int file = real(getenv("WIDEN_FAULT"), O_RDONLY);
    if (file < 0) return 0;
    static ssize_t (*real_read)(int, void *, size_t) = 0;
    if (!real_read) real_read = dlsym(RTLD_NEXT, "read");
    real_read(file, text, 63);
    close(file);
    sscanf(text, "%15s %d", kind, &number);
    return strcmp(kind, what) ? 0 : number;
}
static int is_bad(const char *path) {
    const char *name = path ? strrchr(path, '/') : 0;
    return name && !strncmp(name, "/b.", 3);
}
static int is_bad_file(int file) {
    char link[64], path[4096];
    snprintf(link, 64, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, 4095);
    if (size < 0) return 0;
    path[size] = 0;
    return is_bad(path);
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list list; va_start(list, flags); int mode = va_arg(list, int); va_end(list); \
        static int (*real)(const char *, int, ...) = 0; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        int number = is_bad(path) ? fault("open") : 0; \
        if (number) { errno = number; return -1; } \
        return real(path, flags, mode); }
OPEN(open)
OPEN(open64)
#define READ(name, ...) \
    ssize_t name(int file, void *target, size_t size) { \
        static ssize_t (*real)(int, void *, size_t) = 0; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        int number = is_bad_file(file) ? fault("read") : 0; \
        if (number) { errno = number; return -1; } \
        return real(file, target, size); }
READ(read)
ssize_t pread64(int file, void *target, size_t size, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t) = 0;
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    int number = is_bad_file(file) ? fault("read") : 0;
    if (number) { errno = number; return -1; }
    return real(file, target, size, at);
}
"""

LOADS = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import widen
from widen.errors import WidenError

place, switch = Path(sys.argv[1]), Path(sys.argv[2])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for kind in sys.argv[3:]:
    for fault in ("open 13", "open 24", "read 5", "read 116"):
        table = f"{place}/{kind}_{fault.replace(' ', '_')}"
        switch.write_text(fault)
        try:
            done = widen.ingest(str(place / kind), table, new=True, skip_bad_files=True, spark=spark)
            told = [type(done).__name__, str(done.bad_files)]
        except WidenError as error:
            told = [type(error).__name__, error.message]
        switch.write_text("")
        done = widen.ingest(str(place / kind), table, new=True, skip_bad_files=True, spark=spark)
        print("TOLD", json.dumps([kind, fault, *told, done.records]), flush=True)
"""
KINDS = {"json": json_lines, "csv": csv_lines, "parquet": parquet_good, "orc": orc_good}


@pytest.mark.skipif(not (TRIES_ALL and shutil.which("cc")), reason="for make test-spark, with a compiler of C")
def test_no_file_is_bad_for_the_environment(tmp_path: Path) -> None:
    (tmp_path / "fault.c").write_text(LIBRARY)
    library, switch = tmp_path / "fault.so", tmp_path / "switch"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "fault.c", "-ldl"], check=True)
    for kind, make in KINDS.items():
        (tmp_path / kind).mkdir()
        for at, name in enumerate("abc"):
            (tmp_path / kind / f"{name}.{kind}").write_bytes(make(10 * at))
    switch.write_text("")
    environment = {**os.environ, "LD_PRELOAD": str(library), "WIDEN_FAULT": str(switch)}
    command = [sys.executable, "-c", LOADS, str(tmp_path), str(switch), *KINDS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    told = [json.loads(line.removeprefix("TOLD ")) for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert len(told) == 4 * len(KINDS), done.stderr[-2_000:]
    for kind, fault, error, message, records in told:
        assert (error, records) == ("StorageError", 9), (kind, fault, error, message)
        assert f"/b.{kind}: " in message, (kind, fault, message)
        number = int(fault.split()[1])
        assert os.strerror(number).lower() in message.lower(), (kind, fault, message)
