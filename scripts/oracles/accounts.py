#!/usr/bin/env python3
"""What the example `accounts` must write, computed from its input alone: no engine, no state, no order.

    scripts/oracles/accounts.py ACCOUNTS POSTINGS OUT

Writes OUT/balances.sorted, OUT/statements.sorted and OUT/branches.sorted, as `LC_ALL=C sort` sorts them.
"""

import pathlib
import sys

MASK = (1 << 64) - 1
ACCOUNTS_PER_BRANCH, ENTRIES_PER_STATEMENT, MARKED = 1_000, 16, 64


def drawn(number):
    z = ((number + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def main():
    accounts, postings, out = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    entries, sums, newest = [0] * accounts, [0] * accounts, [0] * accounts
    marks, marked = [0] * accounts, [0] * accounts
    for number in range(postings):
        value = drawn(number)
        account = number if number < accounts else value % accounts
        entries[account] += 1
        sums[account] += value
        newest[account] = number
        if number % MARKED == 0:
            marks[account] += 1
            marked[account] += number
    branches = {}
    for account, count in enumerate(entries):
        if count:
            branch = branches.setdefault(account // ACCOUNTS_PER_BRANCH, [0, 0])
            branch[0] += 1
            branch[1] += count
    def line(names, *values):
        return "{" + ",".join(f'"{name}":{value}' for name, value in zip(names, values)) + "}"

    balance = ["account", "entries", "sum", "newest", "marks", "marked"]
    lines = {
        "balances": [line(balance, a, entries[a], sums[a] & MASK, newest[a], marks[a], marked[a])
                     for a in range(accounts) if entries[a]],
        "statements": [line(["account", "entries"], a, n) for a in range(accounts)
                       for n in range(ENTRIES_PER_STATEMENT, entries[a] + 1, ENTRIES_PER_STATEMENT)],
        "branches": [line(["branch", "accounts", "entries"], b, *known) for b, known in branches.items()],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in lines.items():
        content.sort()
        (out / f"{name}.sorted").write_text("".join(line + "\n" for line in content))


main()
