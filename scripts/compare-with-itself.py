#!/usr/bin/env python3
"""Compares a build with itself, and with one that computes 5 % longer, N times each: how often `weir compare` calls them different.

scripts/compare-with-itself.py WEIR N [SECONDS]: WEIR is the binary, SECONDS (20) how long one comparison may take. Prints a line for each
comparison, and at the end how many were called slower, faster or undecided, and in how many single pairs the home-made rule
"p95 is 1.3 times that of the base" would have called the new one slower. Needs cc. 200 comparisons of each kind take at most 2 h 15 min.
"""
import json, pathlib, subprocess, sys, tempfile, time

weir, count = sys.argv[1], int(sys.argv[2])
limit = sys.argv[3] if len(sys.argv) > 3 else "20"
source = pathlib.Path(__file__).parent.parent / "crates/weir/tests/it/services/held_out/one_thread.c"
ROUNDS = {"itself": 60000, "5 % slower": 63000}


def p95s(side):
    """The 95th percentile of each run, by its number."""
    trials = json.loads((side / "results.json").read_text())["trials"]
    return {of["repetition"]: of["load"]["latency"]["us_p95"] for of in trials if of.get("load")}


def compare(folder, name, number):
    out = folder / f"{name[0]}{number}"
    sides = [f"{folder}/{of} {{port}}" for of in ("itself", name)]
    command = [weir, "compare", "--command", sides[0], "--command", sides[1], "--url", "/", "--fail-if-slower", "5%"]
    length = ["--for", f"{limit}s", "--window", "200ms", "--warmup", "50ms", "--clients", "4", "--json", "--out", str(out)]
    begun = time.monotonic()
    done = subprocess.run(command + length, capture_output=True, text=True)
    verdicts = {of["figure"]: of["standing"] for of in json.loads(done.stdout)["gate"]["verdicts"]}
    base, new = p95s(out / "base"), p95s(out / "new")
    pairs = [new[of] > 1.3 * base[of] for of in base if of in new]
    said = "undecided"
    for standing, word in (("better", "faster"), ("worse", "slower"), ("regression", "slower")):
        if standing in verdicts.values():
            said = word
    return said, time.monotonic() - begun, pairs, verdicts


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for name, rounds in ROUNDS.items():
        subprocess.run(["cc", "-O2", f"-DROUNDS={rounds}", "-o", folder / name.replace(" ", "_"), source], check=True)
    names = {name: name.replace(" ", "_") for name in ROUNDS}
    results = {name: [] for name in ROUNDS}
    for number in range(count):
        for name in ROUNDS:
            found = compare(folder, names[name], number)
            results[name].append(found)
            said, secs, pairs, verdicts = found
            words = ", ".join(f"{figure} {standing}" for figure, standing in verdicts.items())
            print(f"{name}: {said} after {len(pairs)} pairs, {secs:.0f} s; p95 rule {sum(pairs)}; {words}", flush=True)
    for name, all_of in results.items():
        said = [of[0] for of in all_of]
        pairs = [one for of in all_of for one in of[2]]
        counts = ", ".join(f"{word} {said.count(word)}" for word in ("slower", "faster", "undecided"))
        secs = sorted(of[1] for of in all_of)[len(all_of) // 2]
        print(f"{name}: {counts} of {len(said)}; median {secs:.0f} s; p95 rule: {sum(pairs)} of {len(pairs)} single pairs")
