#!/usr/bin/env python3
"""Runs the test binaries that cargo built, several at a time, and says what came of them.

usage: run.py --log FILE --times FILE --counts FILE [--broker PROGRAM] [--jobs N] [FILTER] < messages

`messages` is what `cargo test --no-run --message-format=json` prints. `cargo test` runs one binary after the other, and
a core is idle whenever a test waits for a server; here the binaries share the cores. FILTER is part of a test's name.

FILE of --log gets all that the tests printed; FILE of --times how long each test took, as JSON, which orders the binaries
of the next run: the longest first; FILE of --counts how many passed, failed and were skipped. Shown are failures, skipped
tests and the slowest tests. Exits with 1 where a test failed.

PROGRAM is `gatelog-kafka-broker`: one Kafka for all binaries that want one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

# Begun first where no earlier run says how long they take.
LONG = [
    "gatelog-it/it", "gatelog-web/it", "gatelog-executing/it", "gatelog-world/seeds", "gatelog-log-kafka/gatelog_log_kafka",
    "gatelog-world/planted", "gatelog-scenario/conformance", "gatelog-driver-gerrit/real",
]
# These run alone, before all others: their servers have deadlines of their own.
ALONE = {"gatelog-it/it"}
# These want a Kafka.
ON_KAFKA = {"gatelog-it/it", "gatelog-log-kafka/gatelog_log_kafka"}
SLOWEST = 20
RESULT = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored.*?)(?: <([0-9.]+)s>)?$")
SKIPPED = re.compile(r"SKIPPED [^:]*: .*")


class Binary:
    """A test binary, and what came of it."""

    def __init__(self, message):
        # path+file:///…/tests/it#gatelog-it@0.1.0
        package = message["package_id"].rsplit("#", 1)
        folder = os.path.dirname(message["manifest_path"])
        name = package[1].split("@")[0] if "@" in package[1] else os.path.basename(package[0])
        self.name = f"{name}/{message['target']['name']}"
        self.path = message["executable"]
        self.folder = folder
        self.seconds = 0.0
        self.status = None
        self.output = ""
        self.times = {}
        self.passed = self.failed = self.ignored = 0
        self.skipped = []

    def run(self, filters, threads, output):
        """Runs all tests whose name contains the filter. What it prints goes to a file, so that one can look on."""
        environment = dict(os.environ, CARGO_MANIFEST_DIR=self.folder)
        # `--report-time` is an unstable option of the test harness.
        environment["RUSTC_BOOTSTRAP"] = "1"
        command = [self.path, "-Zunstable-options", "--report-time", "--show-output", "--color=never"]
        command += [f"--test-threads={threads}", *filters]
        begun = time.monotonic()
        with open(output, "w+b") as file:
            ran = subprocess.run(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, check=False,
            )
            file.seek(0)
            self.output = file.read().decode(errors="replace")
        os.remove(output)
        self.seconds = time.monotonic() - begun
        self.status = ran.returncode
        self.read()

    def read(self):
        """Reads the results. A test that passed and printed SKIPPED counts as skipped."""
        among, inside, skipping = "", None, set()
        for line in self.output.splitlines():
            result = RESULT.match(line)
            if result and not among:
                name, said, seconds = result.groups()
                self.times[name] = float(seconds or 0)
                self.passed += said == "ok"
                self.failed += said == "FAILED"
                self.ignored += said.startswith("ignored")
            if line in ("successes:", "failures:"):
                among = line
            elif line.startswith("test result:"):
                among = ""
            header = re.match(r"^---- (.*) stdout ----$", line)
            if header:
                inside = header.group(1) if among == "successes:" else None
            why = SKIPPED.search(line)
            if why:
                self.skipped.append(why.group(0))
                if inside is None or not among:
                    # Printed past the harness's capture.
                    skipping.add(("", len(skipping)))
                else:
                    skipping.add((inside, 0))
        count = min(len(skipping), self.passed)
        self.passed -= count
        self.ignored += count
        if self.status != 0 and self.failed == 0:
            # It did not get as far as its results: a crash, or a test harness that was refused.
            self.failed = 1

    def failures(self):
        """What the failed tests printed."""
        if self.failed == 0:
            return ""
        at = self.output.find("\nfailures:\n")
        return self.output[at:] if at >= 0 else self.output[-20_000:]


def known_times(path):
    """How long each binary took last time, by name."""
    try:
        with open(path, encoding="utf-8") as file:
            return {name: entry["seconds"] for name, entry in json.load(file).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def order(binaries, known):
    """The longest first; what is not known stands in front where LONG names it, else at the end."""
    def weight(binary):
        place = LONG.index(binary.name) if binary.name in LONG else len(LONG)
        return (-known.get(binary.name, 0), place, binary.name)
    return sorted(binaries, key=weight)


def start_broker(program):
    """One Kafka for all. It ends with its standard input, so with this process, however that one ends."""
    broker = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    named = broker.stdout.readline().decode().strip()
    # Where there is none, each test says why.
    if named:
        os.environ["GATELOG_TEST_BROKER"] = named
    return broker


def run_all(binaries, filters, jobs, cores, log):
    """Runs the binaries, `jobs` at a time."""
    waiting, lock = list(binaries), threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                binary = waiting.pop(0)
            binary.run(filters, cores, f"{log.name}.{binary.name.replace('/', '.')}")
            with lock:
                log.write(f"==== {binary.name} ({binary.path}): {binary.seconds:.1f} s\n{binary.output}\n")
                log.flush()
                if binary.passed or binary.failed:
                    said = f"{binary.passed} passed" + (f", {binary.failed} FAILED" if binary.failed else "")
                    print(f"{binary.seconds:7.1f} s  {binary.name}: {said}", flush=True)
                if binary.failed:
                    print(binary.failures(), flush=True)

    workers = [threading.Thread(target=work) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--log", required=True)
    parser.add_argument("--times", required=True)
    parser.add_argument("--counts", required=True)
    parser.add_argument("--broker")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("filters", nargs="*")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    messages = [json.loads(line) for line in sys.stdin if line.startswith("{")]
    built = [one for one in messages if one.get("executable") and one.get("profile", {}).get("test")]
    binaries = order([Binary(one) for one in built], known_times(arguments.times))
    if not binaries:
        sys.exit("run.py: cargo named no test binary")
    broker = None
    if arguments.broker and not arguments.filters and any(one.name in ON_KAFKA for one in binaries):
        broker = start_broker(arguments.broker)
    alone = [one for one in binaries if one.name in ALONE]
    beside = [one for one in binaries if one.name not in ALONE]
    with open(arguments.log, "w", encoding="utf-8") as log:
        run_all(alone, arguments.filters, 1, cores, log)
        run_all(beside, arguments.filters, arguments.jobs or cores, cores, log)
    if broker:
        broker.stdin.close()
        broker.wait()

    tests = sorted(((seconds, f"{binary.name} {test}") for binary in binaries for test, seconds in binary.times.items()),
                   reverse=True)
    shown = [one for one in tests[:SLOWEST] if one[0] >= 1]
    if shown:
        print("the slowest tests:")
        for seconds, name in shown:
            print(f"{seconds:7.1f} s  {name}")
    skipped = sorted(why for binary in binaries for why in binary.skipped)
    if skipped:
        print("skipped:")
        for why in sorted(set(skipped)):
            print(f"{skipped.count(why):7d} {why}")
    if not arguments.filters:
        with open(arguments.times, "w", encoding="utf-8") as file:
            json.dump({one.name: {"seconds": one.seconds, "tests": one.times} for one in binaries}, file, indent=1)
    failed = sum(binary.failed for binary in binaries)
    with open(arguments.counts, "w", encoding="utf-8") as file:
        print(sum(one.passed for one in binaries), failed, sum(one.ignored for one in binaries), file=file)
    sys.exit(1 if failed else 0)


main()
