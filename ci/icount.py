"""Compares counts of instructions with a budget: icount.py COUNTS BUDGET [--write-budget].

Fails if a kernel takes more than 3 % above its budget, has none, or has gone, and if the kernels that most models
use are above their limits. --write-budget makes the counts the budget.
"""
import json
import sys

TOLERANCE = 1.03
# Per weight and row of activations: packed weights, Q8_0 and Q4_0.
LIMITS = {"m=1": {"neon_dotprod": 0.45, "neon_smull": 0.75}, "m=2": {"neon_dotprod": 0.30, "neon_i8mm": 0.17}}


def main(counts_file, budget_file, *options):
    counts = json.load(open(counts_file))
    bad = []
    for row, tiers in LIMITS.items():
        for tier, limit in tiers.items():
            for fmt in ("q8_0", "q4_0"):
                names = [n for n in counts if n.startswith(f"qgemv_packed_f32_q8_{fmt}_") and n.endswith(f"__{tier} {row}")]
                for name in names:
                    print(f"{name}: {counts[name]} instructions per weight and row, limit {limit}")
                if not names or any(counts[n] > limit for n in names):
                    bad.append(f"{fmt}, {tier}, {row}: limit {limit}")
    if "--write-budget" in options:
        with open(budget_file, "w") as f:
            json.dump(counts, f, indent=0, sort_keys=True)
            f.write("\n")
    budget = json.load(open(budget_file))
    for name in sorted(counts.keys() | budget.keys()):
        got, allowed = counts.get(name), budget.get(name)
        if got is None or allowed is None:
            bad.append(f"{name}: {got} counted, {allowed} budgeted")
        elif got > allowed * TOLERANCE:
            bad.append(f"{name}: {got}, {100 * (got / allowed - 1):.1f} % above its budget {allowed}")
    saved = sum(counts[n] < budget[n] / TOLERANCE for n in counts.keys() & budget.keys())
    print(f"{len(counts)} counts, {len(bad)} above their budget or limit, {saved} below by more than 3 %")
    print("\n".join(bad))
    return bool(bad)


sys.exit(main(*sys.argv[1:]))
