"""What the comparisons with the real Zuul share."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def needed(name, inside):
    """The folder that a variable names, or the end of the run."""
    folder = os.environ.get(name, "")
    if not folder or not os.path.exists(os.path.join(folder, inside)):
        print(f"SKIPPED the comparison with Zuul: {name} names no folder with {inside}")
        sys.exit(0)
    return os.path.abspath(folder)


def seconds(text):
    """A figure of a benchmark's table, in seconds."""
    number, unit = text.split()[:2]
    return float(number) * UNITS[unit]


def bench(name, *arguments):
    """The rows of one of gatelog's benchmarks: what, and its figure. GATELOG_BENCH_<NAME> names one that is built."""
    built = os.environ.get(f"GATELOG_BENCH_{name.upper()}")
    command = [built, *arguments] if built else [os.path.join(ROOT, "dev"), "bench", name, *(["--", *arguments] if arguments else [])]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return dict(re.findall(r"^\| (.+?) +\| (.+?) +\|", done.stdout, re.M))


def zuul(peer, made, script, out, *arguments):
    """Runs one of the scripts that measure Zuul; what it found is in `out`."""
    told = " ".join(arguments)
    command = (f'. "{made}/env.sh" && PYTHONPATH="{peer}:$PYTHONPATH" '
               f'python "{peer}/{script}" {told} --out "{out}" >/dev/null')
    subprocess.run(["bash", "-c", command], check=True)
