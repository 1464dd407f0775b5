"""Processes that append to a table without a pause, and end at a random moment.

Run as a program: ``killed_writers.py FOLDER SIGNAL SEED COUNT`` prints what is wrong afterwards, as JSON lines. It
imports once and forks each writer, so that one costs milliseconds. What a writer leaves stays for the next ones.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TextIO

from support.fault import read_log, table_complaints
from support.log_writer import append
from widen.table import Table, create_table

PROPERTIES = {"delta.checkpointInterval": "2", "delta.enableTypeWidening": "true"}
WRITERS_OF_A_TABLE = 10
MOST_ANSWERS = 3
INTERRUPTED, FAILED = 130, 1
AGAIN_AFTER, KILL_AFTER = 10, 60
"""After how many seconds a writer that goes on gets its signal again, and one that does not end at all is killed."""


def write_without_end(place: Path, name: str, answers: int) -> None:
    """Append, and change properties, and tell each version that was acknowledged."""
    for number in itertools.count():
        path = f"{name}-{number}/part.parquet"
        version = append(place, path)
        os.write(answers, f"{version} {path}\n".encode())
        if number % 4 == 3:
            version = Table(str(place / "t")).set_properties({"writer": path}).version
            os.write(answers, f"{version} \n".encode())


def fork_writer(place: Path, name: str) -> tuple[int, int]:
    """Start a writer; return its process id and where its answers are read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore interrupts
    try:
        write_without_end(place, name, writing)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except BaseException:  # a process that must not return to what its parent does
        (place / "error").write_text(traceback.format_exc())
        os._exit(FAILED)


def end_writer(place: Path, name: str, number: signal.Signals, rng: random.Random) -> tuple[list[str], int]:
    """Let a writer work for a while and end it; return what is wrong then, and how many answers it gave."""
    before = read_log(place / "t")
    child, reading = fork_writer(place, name)
    with open(reading) as pipe:
        lines = wait(pipe, rng)
        os.kill(child, number)
        last, was_asked_again = read_to_end(pipe, child, number)
        answers = [line.rstrip("\n").split(" ") for line in (*lines, *last)]
    end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wanted = -number if number == signal.SIGKILL else INTERRUPTED
    wrong = [] if end == wanted else [f"ended with {end}: {read_error(place)}"]
    if was_asked_again and len(last) < MOST_ANSWERS:
        wrong.append("after a signal it neither ended nor wrote")
    log = read_log(place / "t")
    if sorted(log) != list(range(len(log))):
        wrong.append(f"the versions are {sorted(log)}")
    if len(log) - len(before) not in (len(answers), len(answers) + 1):
        wrong.append(f"{len(answers)} versions were acknowledged, and {len(log) - len(before)} are visible")
    live = Table(str(place / "t")).snapshot.files()["path"].to_pylist()
    wrong += [f"version {version} is lost" for version, _ in answers if int(version) not in log]
    wrong += [f"{path} is live {live.count(path)} times" for _, path in answers if path and live.count(path) != 1]
    return wrong + table_complaints(place / "t", before), len(answers)


def read_to_end(pipe: TextIO, child: int, number: signal.Signals) -> tuple[list[str], bool]:
    """Read the last answers of a writer that got a signal; return them, and whether it needed the signal again.

    Python drops an interrupt that arrives while it runs a finalizer or another callback: the user presses again.
    """
    asked: list[int] = []

    def ask_again() -> None:
        asked.append(number)
        os.kill(child, number)

    timers = [threading.Timer(AGAIN_AFTER, ask_again), threading.Timer(KILL_AFTER, os.kill, (child, signal.SIGKILL))]
    for timer in timers:
        timer.start()
    lines = list(pipe)
    for timer in timers:
        timer.cancel()
        timer.join()  # the next writer is forked, and a fork copies no threads
    return lines, bool(asked)


def wait(pipe: TextIO, rng: random.Random) -> list[str]:
    """Wait for some answers, and for a part of the time that the next one takes; return the answers."""
    begin, count = time.monotonic(), rng.randint(1, MOST_ANSWERS)
    lines = [pipe.readline() for _ in range(count)]
    time.sleep(rng.random() * (time.monotonic() - begin) / count)
    return lines


def read_error(place: Path) -> str:
    path = place / "error"
    return path.read_text()[-1000:] if path.exists() else ""


def main(folder: Path, number: signal.Signals, seed: int, count: int) -> None:
    """End that many writers, and print what is wrong after each and how many answers they gave in all."""
    rng, answered, visible = random.Random(seed), 0, 0
    for writer in range(count):
        place = folder / f"{number.name}-{seed + writer // WRITERS_OF_A_TABLE * WRITERS_OF_A_TABLE}"
        if not place.exists():
            place.mkdir()
            create_table(str(place / "t"), "a int", properties=PROPERTIES)
        count_before = len(read_log(place / "t"))
        wrong, answers = end_writer(place, f"w{writer}", number, rng)
        answered += answers
        visible += len(read_log(place / "t")) - count_before - 1
        if wrong:
            print(json.dumps({"writer": writer, "wrong": wrong}), flush=True)
    print(json.dumps({"done": count, "acknowledged": answered, "visible only": visible - answered}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), signal.Signals[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4]))
