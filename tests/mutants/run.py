#!/usr/bin/env python3
"""Tries the mutants of the gate's rules: see --help, and weave.py for how.

What is found out is kept in the work directory, a line for each mutant, so that a run that was stopped goes on where
it was. `--again` tries those once more that nothing had caught, with the scenarios there are now.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import weave  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATE = "services/rules/gate"
PACKAGE = "gatelog-rules-gate"
# Everything that plays the gate's rules; the first is the crate itself, and what is tried with it alone is cheap.
TESTED_BY = [PACKAGE, "gatelog-scenario", "gatelog-world"]
CHEAP = {"unit tests", "scenarios", "random stories"}
# A mutant may ask for memory without end.
MEMORY = 4 << 30


def say(text):
    print(text, flush=True)


def output(*command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- making the build ----


def listed():
    """What cargo-mutants would try."""
    found = json.loads(output("cargo", "mutants", "--list", "--json", "--package", PACKAGE))
    found = [one for one in found if one["file"].startswith(f"{CRATE}/src/")]
    for number, one in enumerate(found, 1):
        one["id"] = number
        # It gives an iterator of `&mut` where one of `&` is promised, which the compiler says of the whole function.
        one["unviable"] = one["function"]["return_type"].startswith("-> impl Iterator") and "leak" in one["replacement"]
    return found


def copy_tree(tree):
    """Copies what git knows of, and what is new; leaves alone what is the same, so that little is built anew."""
    names = output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    wanted = set()
    for name in filter(None, names):
        source, target = ROOT / name, tree / name
        if not source.is_file() or name.startswith(f"{CRATE}/src/"):
            continue
        wanted.add(target)
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for old in tree.rglob("*"):
        if old.is_file() and old not in wanted and not old.is_relative_to(tree / CRATE / "src"):
            old.unlink()


def put(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_woven(tree, mutants):
    """Writes the crate with these mutants in it; gives where they are, by file."""
    functions, ranges = [], {}
    by_file = collections.defaultdict(list)
    for mutant in mutants:
        if mutant["function"]:
            by_file[mutant["file"]].append(mutant)
    for path in sorted((ROOT / CRATE / "src").rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        text, ranges[name] = weave.weave(path.read_text(), by_file[name], functions)
        if name == f"{CRATE}/src/lib.rs":
            text = text.replace("\nmod ", "\nmod mutant_switch;\nmod ", 1)
            head, _, rest = text.partition("\n\n")
            text = f"{head}\n#![allow(warnings, clippy::all)]\n{rest}"
        put(tree / name, text)
    put(tree / CRATE / "src/mutant_switch.rs", weave.SWITCH.replace("@FUNCTIONS@", str(len(functions))))
    # Lints of the house are not asked here.
    manifest = tree / CRATE / "Cargo.toml"
    put(manifest, manifest.read_text().replace("[lints]\nworkspace = true\n", ""))
    return ranges


def cargo(tree, *arguments):
    run = subprocess.run(
        ["cargo", *arguments, "--message-format=json"], cwd=tree, stdout=subprocess.PIPE, text=True, check=False
    )
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def blamed(messages, ranges):
    """The mutants that do not compile."""
    found, unknown = set(), []
    for message in messages:
        if message["reason"] != "compiler-message" or message["message"]["level"] != "error":
            continue
        spans = [span for span in message["message"]["spans"] if span["is_primary"]]
        ids = {weave.at_line(ranges.get(span["file_name"], []), span["line_start"]) for span in spans} - {None}
        if ids:
            found |= ids
        elif spans:
            unknown.append(message["message"]["rendered"])
    if not found:
        sys.exit("the woven crate does not compile, and it is no mutant's fault:\n" + "\n".join(unknown[:5]))
    return found


def build(tree, mutants, tested_by):
    """Builds with all mutants that compile; gives the test binaries. Those that do not are marked."""
    for _ in range(20):
        good = [one for one in mutants if not one.get("unviable")]
        ranges = write_woven(tree, good)
        status, messages = cargo(tree, "check", "-p", PACKAGE)
        if status == 0:
            break
        bad = blamed(messages, ranges)
        say(f"{len(bad)} more do not compile")
        for one in mutants:
            if one["id"] in bad:
                one["unviable"] = True
    packages = [word for name in tested_by for word in ("-p", name)]
    status, messages = cargo(tree, "test", "--no-run", *packages)
    if status != 0:
        blamed(messages, ranges)
        sys.exit("the tests do not build with the woven crate")
    found = {}
    for message in messages:
        if message["reason"] == "compiler-artifact" and message.get("executable"):
            target = message["target"]
            package = message["manifest_path"].removeprefix(f"{tree}/").removesuffix("/Cargo.toml")
            kind = "unit" if "lib" in target["kind"] else target["kind"][0]
            if kind != "bin" or not message["profile"]["test"]:
                found[f"{package}:{kind}:{target['name']}"] = message["executable"]
    # A build that is made meanwhile must not change them under a run.
    keep = tree.parent / "bin"
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir()
    for name, path in found.items():
        found[name] = shutil.copy2(path, keep / name.replace(":", "-").replace("/", "-"))
    return found


# ---- running ----


def watch(command, cwd, seconds, mutant=0, reach=None, took=None):
    """Runs a command until it ends, says that something failed, or its time is over.

    The time is that of the processor, so that a busy machine makes no difference; by the clock it is a hundred times
    that. Gives "ok", or how it failed: the name of a test, "timeout" or "status N". `took` is told the time it took.
    """

    def limits():
        cpu = max(1, int(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    environment = {**os.environ, "MUTANT": str(mutant), "RUST_BACKTRACE": "0", "RUST_MIN_STACK": str(64 << 20)}
    if reach:
        environment["MUTANT_REACH"] = str(reach)
    child = subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, preexec_fn=limits,
    )
    end, rest = time.monotonic() + 100 * seconds, b""
    try:
        while True:
            if not select.select([child.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return "timeout"
            read = os.read(child.stdout.fileno(), 1 << 16)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").strip()
                if text.startswith("test ") and text.endswith("FAILED"):
                    return text.split()[1]
                if text.startswith(("DIFFERS ", "FAILS ")):
                    return pathlib.Path(text.split(" ", 1)[1]).stem
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status = os.waitstatus_to_exitcode(status)
        if took is not None:
            took.append(used.ru_utime + used.ru_stime)
        if status == -signal.SIGXCPU:
            return "timeout"
        return "ok" if status == 0 else f"status {status}"
    finally:
        # Once it was waited for, its number may be another's.
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        child.stdout.close()


class Stage:
    """Tests that are run in one go: the parts of them that reach a mutant."""

    def __init__(self, name, cwd, command, parts, limit):
        self.name, self.cwd, self.command, self.parts, self.limit = name, cwd, command, parts, limit
        self.reach = {}
        self.seconds = {}
        # Who caught others of a function catches more of them.
        self.caught = collections.Counter()

    def look(self, work, pool):
        """Runs every part once without a mutant: it must be healthy; notes time and functions reached."""

        def run(number, part):
            file = work / f"reach-{number}.txt"
            file.unlink(missing_ok=True)
            took = []
            ended = watch(self.command([part]), self.cwd, 600, reach=file, took=took)
            self.seconds[part] = sum(took)
            self.reach[part] = {int(line) for line in file.read_text().split()} if file.exists() else set()
            file.unlink(missing_ok=True)
            return ended

        for part, ended in zip(list(self.parts), list(pool.map(run, range(len(self.parts)), self.parts))):
            if ended != "ok":
                say(f"{self.name}: {part} fails without a mutant ({ended}) and is left out")
                self.parts.remove(part)
                del self.reach[part]
        say(f"{self.name}: {len(self.parts)} parts, {sum(self.seconds.values()):.1f} s")

    def try_it(self, mutant):
        """Whether and how a mutant is caught here; None when it is not."""
        parts = [part for part in self.parts if mutant["reach"] in self.reach[part]]
        if not parts:
            return None
        function = mutant["reach"]
        parts.sort(key=lambda part: (-self.caught[(function, pathlib.Path(part).stem)], len(self.reach[part])))
        # A test binary has an order of its own; so the likely ones go first, alone.
        for some in (parts[:3], parts[3:]):
            if some:
                limit = self.limit + 10 * sum(self.seconds[part] for part in some)
                ended = watch(self.command(some), self.cwd, limit, mutant["id"])
                if ended != "ok":
                    self.caught[(function, ended)] += 1
                    return ended
        return None


def tests_in(binary, cwd):
    text = subprocess.run([binary, "--list"], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.removesuffix(": test") for line in text.splitlines() if line.endswith(": test")]


def libtest(binary):
    return lambda parts: [binary, "--exact", "--test-threads=1", *parts]


def stages(tree, binaries, peer, seeds):
    """From the cheapest to the dearest."""
    crate, found = tree / CRATE, []
    for name in (f"{CRATE}:unit:gatelog_rules_gate", f"{CRATE}:test:gate"):
        binary = binaries[name]
        tests = tests_in(binary, crate)
        short = [one for one in tests if not one.startswith("random::")]
        label = "unit tests" if ":unit:" in name else "scenarios"
        found.append(Stage(label, crate, libtest(binary), short, 10))
        if len(short) != len(tests):
            found.append(Stage("random stories", crate, libtest(binary), [one for one in tests if one not in short], 20))
    if "tests/scenario:bin:gatelog-scenario" not in binaries:
        return found
    player = binaries["tests/scenario:bin:gatelog-scenario"]
    folders = [("whole scenarios", tree / "tests/scenario/scenarios")]
    if peer:
        folders.append(("scenarios of Zuul", peer / "scenarios/open"))
    for label, folder in folders:
        files = [str(one) for one in sorted(folder.glob("*.yaml")) if one.with_suffix(".expected.json").exists()]
        found.append(Stage(label, tree, lambda parts: [player, "--check", *parts], files, 20))
    world = binaries["tests/world:bin:gatelog-world"]
    command = lambda parts: [world, "--seeds", parts[0], "--script", "-"]
    found.insert(-1 if peer else len(found), Stage("world", tree, command, [str(seeds)], 20))
    return found


# ---- telling ----


def name_of(mutant):
    return mutant["name"].removeprefix(f"{CRATE}/src/")


def tell(mutants, results, all_stages):
    caught = collections.Counter()
    survivors = []
    for one in mutants:
        result = results.get(one["name"])
        if one.get("unviable"):
            caught["unviable"] += 1
        elif result is None:
            caught["not tried"] += 1
        elif result["by"] is None:
            survivors.append(one)
        else:
            caught[result["by"]] += 1
    say(f"{len(mutants)} mutants")
    for label in ["unviable", *[stage.name for stage in all_stages], "not tried"]:
        if caught[label]:
            say(f"  {caught[label]:5} {label}")
    say(f"  {len(survivors):5} caught by nothing")
    for one in survivors:
        say(f"{name_of(one)}{'' if results[one['name']]['reached'] else '  (never reached)'}")


def main():
    parser = argparse.ArgumentParser(description="Tries every mutant that cargo-mutants finds in the gate's rules.")
    cache = os.environ.get("GATELOG_CACHE", os.path.expanduser("~/.cache/gatelog"))
    parser.add_argument("--work", default=f"{cache}/mutants", help="where everything is kept (%(default)s)")
    parser.add_argument("--target", help="where the build is made (mutants, in CARGO_TARGET_DIR or else in --work)")
    parser.add_argument("--peer", type=pathlib.Path, help="the folder with the scenarios of the real Zuul")
    parser.add_argument("--seeds", type=int, default=6, help="seeds of the world played for each (%(default)s)")
    parser.add_argument("--only", default="", help="only mutants whose names contain one of these words, by commas")
    parser.add_argument("--stages", help="only these, by name, with commas between them")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once (%(default)s)")
    parser.add_argument("--again", action="store_true", help="try those again that nothing caught")
    parser.add_argument("--fresh", action="store_true", help="forget what was found out")
    parser.add_argument("--build", action="store_true", help="only build")
    wanted = parser.parse_args()
    # However it ends, no test of a mutant goes on for ever behind it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    work = pathlib.Path(wanted.work).resolve()
    tree = work / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    # Not where the checkout itself is built: Cargo takes the crates of the one for those of the other.
    target = wanted.target or pathlib.Path(os.environ.get("CARGO_TARGET_DIR", work)) / "mutants"
    os.environ["CARGO_TARGET_DIR"] = str(pathlib.Path(target).resolve())
    file = work / "results.jsonl"
    if wanted.fresh:
        file.unlink(missing_ok=True)

    mutants = listed()
    say(f"{len(mutants)} mutants")
    # Which do not compile is known as long as the sources are the same.
    known = work / "unviable.json"
    sources = output("git", "hash-object", *sorted(map(str, (ROOT / CRATE / "src").rglob("*.rs"))))
    if known.exists() and json.loads(known.read_text())["sources"] == sources:
        names = set(json.loads(known.read_text())["names"])
        for one in mutants:
            one["unviable"] |= one["name"] in names
    copy_tree(tree)
    cheap = wanted.stages and CHEAP.issuperset(wanted.stages.split(","))
    binaries = build(tree, mutants, TESTED_BY[:1] if cheap else TESTED_BY)
    known.write_text(json.dumps({"sources": sources, "names": [one["name"] for one in mutants if one.get("unviable")]}))
    if wanted.build:
        return
    peer = wanted.peer.resolve() if wanted.peer else None
    all_stages = stages(tree, binaries, peer, wanted.seeds)
    if wanted.stages:
        all_stages = [stage for stage in all_stages if stage.name in wanted.stages.split(",")]
    pool = concurrent.futures.ThreadPoolExecutor(wanted.jobs)
    for stage in all_stages:
        stage.look(work, pool)

    results = {}
    if file.exists():
        for line in file.read_text().splitlines():
            result = json.loads(line)
            # What was caught once stays caught.
            if not (results.get(result["name"]) or {}).get("by"):
                results[result["name"]] = result
    began, tried = time.monotonic(), 0

    def attempt(mutant):
        reached = any(mutant["reach"] in part for stage in all_stages for part in stage.reach.values())
        result = {"name": mutant["name"], "by": None, "how": None, "reached": reached}
        for stage in all_stages:
            how = stage.try_it(mutant)
            if how:
                result["by"], result["how"] = stage.name, how
                break
        return mutant, result

    def is_due(mutant):
        old = results.get(mutant["name"])
        return not mutant.get("unviable") and (not old or (old["by"] is None and wanted.again))

    words = wanted.only.split(",")
    due = {one["name"]: one for word in words for one in mutants if word in one["name"] and is_due(one)}
    with file.open("a") as keep:
        for done in concurrent.futures.as_completed([pool.submit(attempt, one) for one in due.values()]):
            mutant, result = done.result()
            results[mutant["name"]] = result
            keep.write(json.dumps(result) + "\n")
            keep.flush()
            tried += 1
            if result["by"] is None:
                say(f"caught by nothing: {name_of(mutant)}")
            if tried % 100 == 0:
                say(f"{tried} tried in {time.monotonic() - began:.0f} s")
    tell(mutants, results, all_stages)


if __name__ == "__main__":
    main()
