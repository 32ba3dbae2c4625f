#!/usr/bin/env python3
"""Changes through a whole gate: gatelog beside the real Zuul, in one run and in turns.

    GATELOG_PEER=DIR PEER_DIR=DIR benches/peers/gate.py [--windows 20,40] [--changes 100] [--rounds N]

GATELOG_PEER holds the scripts that measure Zuul (`measure_throughput.py`, `measure_merger.py`), PEER_DIR what their
set-up made (`env.sh`; its services must be up). Where one of them is missing it says SKIPPED. The same repositories,
configuration and steps on both sides, executors and code review faked; the least of each side's rounds counts.
Processor time of the process and the programs it ran, for each change.

GATELOG_BENCH_REPOSITORIES says where both sides have their repositories. Zuul takes minutes for a window of 100:
`--windows 100` asks for it.
"""
import argparse
import json
import os
import tempfile

from common import bench, needed, seconds, zuul

BEGUN, ENDED = "until all builds run", "let go until all are reported"
AGAIN = "first fails until all behind run again"
FILES = 2000


def theirs(peer, made, script, *arguments):
    """What one of Zuul's scripts found, and the machine's load when it had ended."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        zuul(peer, made, script, out.name, *arguments)
        told = json.load(open(out.name))
    if "error" in told:
        raise SystemExit(f"Zuul's side failed: {told['error']}")
    return told


def throughput(peer, made, story, count):
    """Zuul's seconds of processor time for each change, by the name of the part."""
    mode = "independent" if story == "independent" else "dependent"
    arguments = ["--mode", mode, "--changes", str(count), "--window", str(count)]
    told = theirs(peer, made, "measure_throughput.py", *arguments, *(["--reset"] if story == "reset" else []))
    found = {}
    if story == "reset":
        found[AGAIN] = told["reset"]["process_cpu_s"] / told["reset"]["restarted"]
        return found
    found[BEGUN] = told["enqueue_to_all_running"]["process_cpu_s"] / count
    found[ENDED] = told["release_to_all_reported"]["process_cpu_s"] / count
    found["whole"] = told["whole"]["process_cpu_s"] / count
    return found


def merges(peer, made, count):
    """Zuul's seconds of processor time for merges of a large repository."""
    told = theirs(peer, made, "measure_merger.py", "--files", str(FILES), "--changes", str(count))
    return {"a change": told["stack_cpu_s"] / told["requests"],
            "an item of a request": told["stack_cpu_s"] / told["item_merges"]}


def duration(value):
    """A figure as it stands in a table."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--windows", default="20,40", help="of the dependent pipeline and of resets")
    asked.add_argument("--changes", type=int, default=100, help="through the independent pipeline; 0: none")
    asked.add_argument("--merges", type=int, default=20, help="on top of each other in a large repository; 0: none")
    asked.add_argument("--no-reset", action="store_true", help="leave resets out")
    asked.add_argument("--rounds", type=int, default=1)
    told = asked.parse_args()
    peer, made = needed("GATELOG_PEER", "measure_throughput.py"), needed("PEER_DIR", "env.sh")
    if "GATELOG_BENCH_REPOSITORIES" in os.environ:
        os.environ["TMPDIR"] = os.environ["ZUUL_TEST_ROOT"] = os.environ["GATELOG_BENCH_REPOSITORIES"]
    windows = [int(window) for window in told.windows.split(",") if window]
    stories = [("independent", told.changes)] if told.changes else []
    stories += [(story, window) for window in windows for story in ("dependent", "reset")
                if story == "dependent" or not told.no_reset]
    stories += [("merges", told.merges)] if told.merges else []
    print("| what, for each change | Zuul | gatelog | Zuul takes | machine's load |\n|---|---|---|---|---|", flush=True)
    for story, count in stories:
        sides = {"Zuul": {}, "gatelog": {}}
        for _ in range(told.rounds):
            found = merges(peer, made, count) if story == "merges" else throughput(peer, made, story, count)
            rows = bench("gate", f"{story}:{count}")
            part = f", {FILES} files: " if story == "merges" else ", "
            own = {name: seconds(rows[f"{story}:{count}{part}{name}"]) for name in found}
            for side, figures in (("Zuul", found), ("gatelog", own)):
                for name, figure in figures.items():
                    sides[side][name] = min(figure, sides[side].get(name, figure))
        load = os.getloadavg()[1]
        for name, figure in sides["Zuul"].items():
            ours = sides["gatelog"][name]
            print(f"| {story}, {count}: {name} | {duration(figure)} | {duration(ours)} | {figure / ours:.0f}× | {load:.1f} |",
                  flush=True)


if __name__ == "__main__":
    main()
