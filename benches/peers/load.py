#!/usr/bin/env python3
"""Loading and freezing a real site's configuration: gatelog beside the real Zuul, in one run.

    GATELOG_CORPUS=DIR GATELOG_PEER=DIR PEER_DIR=DIR benches/peers/load.py [--rounds N]

GATELOG_CORPUS holds `openstack/`; GATELOG_PEER the scripts that measure Zuul (`measure_load.py`), PEER_DIR what their
set-up made (`env.sh`; its services must be up). Where one of them is missing it says SKIPPED. Both sides read the same
files; Zuul first, gatelog next, and so on in turns; the best of each side counts. Processor time, but for memory.
"""
import argparse
import json
import sys
import tempfile

from common import bench, needed, seconds, zuul as measured


def zuul(peer, made, corpus):
    """What Zuul takes: seconds of processor time, and MiB."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        measured(peer, made, "measure_load.py", out.name, f'"{corpus}/openstack"')
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
