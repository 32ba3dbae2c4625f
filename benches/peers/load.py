#!/usr/bin/env python3
"""Loading and freezing a real site's configuration: gatelog beside the real Zuul, in one run.

    GATELOG_CORPUS=DIR GATELOG_PEER=DIR PEER_DIR=DIR benches/peers/load.py [--rounds N]

GATELOG_CORPUS holds `openstack/`; GATELOG_PEER the scripts that measure Zuul (`measure_load.py`), PEER_DIR what their
set-up made (`env.sh`; its services must be up). Where one of them is missing it says SKIPPED. Both sides read the same
files; Zuul first, gatelog next, and so on in turns; the best of each side counts. Processor time, but for memory.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def needed(name, inside):
    """The folder that a variable names, or the end of the run."""
    folder = os.environ.get(name, "")
    if not folder or not os.path.exists(os.path.join(folder, inside)):
        print(f"SKIPPED the comparison with Zuul: {name} names no folder with {inside}")
        sys.exit(0)
    return os.path.abspath(folder)


def zuul(peer, made, corpus):
    """What Zuul takes: seconds of processor time, and MiB."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = (f'. "{made}/env.sh" && PYTHONPATH="{peer}:$PYTHONPATH" '
                   f'python "{peer}/measure_load.py" "{corpus}/openstack" --out "{out.name}" >/dev/null')
        subprocess.run(["bash", "-c", command], check=True)
        told = json.load(open(out.name))
    if "error" in told:
        sys.exit(f"Zuul's side failed: {told['error']}")
    parsing = min(one["cpu_s"] for one in told["parse_only"])
    layout = min(one["cpu_s"] for one in told["_parseLayout"])
    return {
        "load everything": told["loadTenant"][0]["cpu_s"],
        "parse and lay out alone": parsing + layout,
        "a graph, mean": told["freeze_no_file_matchers"]["mean_ms"] / 1e3,
        "the largest graph": told["freeze_largest"]["mean_ms"] / 1e3,
        "memory of the loaded tenant": told["rss_mib_loaded"] - told["rss_mib_before"],
    }


def seconds(text):
    """A figure of a benchmark's table, in seconds."""
    number, unit = text.split()[:2]
    return float(number) * UNITS[unit]


def bench(name):
    """The rows of one of gatelog's benchmarks: what, and its figure."""
    done = subprocess.run([os.path.join(ROOT, "dev"), "bench", name], check=True, text=True, stdout=subprocess.PIPE)
    rows = re.findall(r"^\| (.+?) +\| (.+?) +\|", done.stdout, re.M)
    return dict(rows)


def gatelog():
    """What gatelog takes, by the same names."""
    load, freeze = bench("load"), bench("freeze")
    largest = next(figure for what, figure in freeze.items() if what.startswith("the largest graph"))
    memory = next(figure for what, figure in load.items() if what.startswith("memory the loaded site adds"))
    return {
        "load everything": seconds(load["load everything"]),
        "parse and lay out alone": seconds(load["load everything"]),
        "a graph, mean": seconds(freeze["a graph, mean"]),
        "the largest graph": seconds(largest),
        "memory of the loaded tenant": float(memory.split()[0]) / 1024,
    }


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=1)
    rounds = asked.parse_args().rounds
    corpus = needed("GATELOG_CORPUS", "openstack")
    peer, made = needed("GATELOG_PEER", "measure_load.py"), needed("PEER_DIR", "env.sh")
    sides = {"Zuul": {}, "gatelog": {}}
    for _ in range(rounds):
        for side, found in (("Zuul", zuul(peer, made, corpus)), ("gatelog", gatelog())):
            for what, figure in found.items():
                sides[side][what] = min(figure, sides[side].get(what, figure))
    aims = {"load everything": "100×", "parse and lay out alone": "10×", "a graph, mean": "100×",
            "memory of the loaded tenant": "3×"}
    print("| what | Zuul | gatelog | Zuul takes | aim |\n|---|---|---|---|---|")
    for what, theirs in sides["Zuul"].items():
        ours = sides["gatelog"][what]
        scale, unit = (1, "MiB") if what.startswith("memory") else (1e3, "ms")
        times = theirs / ours if ours else float("inf")
        print(f"| {what} | {theirs * scale:.5g} {unit} | {ours * scale:.3g} {unit} | {times:.3g}× | {aims.get(what, '')} |")


if __name__ == "__main__":
    main()
