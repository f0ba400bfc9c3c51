#!/usr/bin/env python3
"""Records what other implementations of sketches answer, for crates/state/tests/suite/sketches.rs to compare ours with.

Needs the Python packages datasketches (Apache DataSketches, Apache-2.0), for count-min, and pyprobables (MIT), for Bloom and
counting Bloom, which the Python package of DataSketches does not have. Takes about two minutes and writes numbers only, on standard output:

    python3 tools/sketches/record.py > crates/state/tests/recorded/sketches.txt

The streams are made of integers alone, so that the test plays the very same: each record carries a digest of its stream.
"""

import bisect
import itertools
from importlib.metadata import version

import datasketches
from probables import BloomFilter, CountingBloomFilter
from probables.hashes import default_sha256

MASK = (1 << 64) - 1
RUNS = 16
# Of count-min.
DRAWS = 200_000
RANKS = 20_000
AMOUNT_MAX = 1_500
# Of filters.
KEYS = 10_000
STRANGERS = 50_000


def mixed(number):
    """SplitMix64's output for a state (Steele, Lea and Flood 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def key_of(run, rank):
    return mixed(run << 32 | rank)


def cumulated(kind):
    """Weights of ranks, summed up: equal ones, or Zipf's with exponent 1."""
    weights = (1 << 40 if kind == "uniform" else (1 << 40) // (rank + 1) for rank in range(RANKS))
    return list(itertools.accumulate(weights))


def stream(sums, run):
    """(key, amount) by (key, amount)."""
    for draw in range(DRAWS):
        number = mixed(mixed(run) ^ draw)
        rank = bisect.bisect_right(sums, number * sums[-1] >> 64)
        yield key_of(run, rank), 1 + mixed(number) % AMOUNT_MAX


def record(name, fields):
    print(f"\n[{name}]")
    for field, value in fields.items():
        print(field, value)


def count_min(kind, error, confidence):
    width = datasketches.count_min_sketch.suggest_num_buckets(error)
    rows = datasketches.count_min_sketch.suggest_num_hashes(confidence)
    sums = cumulated(kind)
    for run in range(RUNS):
        sketch = datasketches.count_min_sketch(rows, width, run + 1)
        truth, digest = {}, 0
        for key, amount in stream(sums, run):
            sketch.update(key - (1 << 64) if key >> 63 else key, amount)
            truth[key] = truth.get(key, 0) + amount
            digest = mixed(digest ^ key ^ amount)
        total = sum(truth.values())
        errors = []
        for key, amount in truth.items():
            errors.append(int(sketch.get_estimate(key - (1 << 64) if key >> 63 else key)) - amount)
        assert min(errors) >= 0
        record(
            f"count-min {kind}",
            {
                "rows": rows,
                "width": width,
                "run": run,
                "digest": digest,
                "total": total,
                "keys": len(truth),
                "error-sum": sum(errors),
                "error-most": max(errors),
                "over": sum(error_of_key > error * total for error_of_key in errors),
            },
        )


def bytes_of(run, number):
    return key_of(run, number).to_bytes(8, "little")


def filters(mistaken):
    for run in range(RUNS):
        plain = BloomFilter(KEYS, mistaken, hash_function=default_sha256)
        counting = CountingBloomFilter(KEYS, mistaken, hash_function=default_sha256)
        for number in range(KEYS):
            plain.add(bytes_of(run, number))
        for number in range(2 * KEYS):
            counting.add(bytes_of(run, number))
        for number in range(KEYS, 2 * KEYS):
            counting.remove(bytes_of(run, number))
        strangers = [bytes_of(run, number) for number in range(2 * KEYS, 2 * KEYS + STRANGERS)]
        found = sum(plain.check(key) for key in strangers)
        present = sum(counting.check(key) > 0 for key in strangers)
        # Beyond what it was made for.
        for number in range(KEYS, 2 * KEYS):
            plain.add(bytes_of(run, number))
        record(
            f"filter {mistaken}",
            {
                "bits": plain.number_bits,
                "rows": plain.number_hashes,
                "run": run,
                "found": found,
                "found-overfull": sum(plain.check(key) for key in strangers),
                "found-counting": present,
            },
        )


print(
    f"""# What other implementations of sketches answered: written by tools/sketches/record.py, read by crates/state/tests/suite/sketches.rs.
# Count-min: Apache DataSketches {version("datasketches")} (Apache-2.0). Filters: pyprobables {version("pyprobables")} (MIT). Numbers only, none of their text."""
)
for error, confidence in [(0.001, 0.99), (0.01, 0.95)]:
    for kind in ["uniform", "zipf"]:
        count_min(kind, error, confidence)
for mistaken in [0.01, 0.001]:
    filters(mistaken)
