#!/usr/bin/env python3
"""flights.py DATA OUT: the results of the example `flights`, computed from the same files without Millpond.

Writes OUT/<result>.sorted, one JSON object a line, sorted by bytes. Needs nothing but Python.
"""
import csv
import glob
import gzip
import json
import os
import sys


def rows(path):
    opened = gzip.open(path, "rt", newline="") if path.endswith(".gz") else open(path, newline="", encoding="utf-8")
    with opened as file:
        yield from csv.DictReader(file)


def known(value):
    return None if value == "NA" else value


def main(data, out):
    planes = {row["tailnum"]: row for row in rows(os.path.join(data, "planes.csv"))}
    delays, last, destinations = {}, {}, {}
    results = {name: [] for name in ("delays", "last-flights", "destinations", "with-aircraft")}
    for path in sorted(glob.glob(os.path.join(data, "flights*.csv*"))):
        for row in rows(path):
            date = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
            label = f"{date} {row['carrier']}{int(row['flight'])} {row['origin']}-{row['dest']}"
            tailnum = known(row["tailnum"])
            delay = known(row["dep_delay"])

            key = (row["carrier"], row["origin"])
            running = delays.setdefault(key, {
                "carrier": row["carrier"], "origin": row["origin"], "departed": 0, "cancelled": 0,
                "total_minutes": 0, "mean_minutes": 0.0, "worst_minutes": None})
            if delay is None:
                running["cancelled"] += 1
            else:
                running["departed"] += 1
                running["total_minutes"] += int(delay)
                running["mean_minutes"] = running["total_minutes"] / running["departed"]
                worst = running["worst_minutes"]
                running["worst_minutes"] = int(delay) if worst is None else max(worst, int(delay))
            results["delays"].append(dict(running))

            if tailnum is not None:
                flights = last.setdefault(tailnum, [])
                flights.append(label)
                del flights[:-10]
                results["last-flights"].append({"tailnum": tailnum, "flights": list(flights)})

            key = (row["carrier"], row["dest"])
            destinations[key] = destinations.get(key, 0) + 1
            results["destinations"].append({"carrier": key[0], "dest": key[1], "flights": destinations[key]})

            plane = planes.get(tailnum)
            results["with-aircraft"].append({
                "flight": label, "scheduled": int(row["sched_dep_time"]), "tailnum": tailnum,
                "manufacturer": plane["manufacturer"] if plane else None,
                "model": plane["model"] if plane else None,
                "built": int(plane["year"]) if plane and known(plane["year"]) else None,
                "seats": int(plane["seats"]) if plane else None})
    os.makedirs(out, exist_ok=True)
    for name, lines in results.items():
        text = sorted(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() for line in lines)
        with open(os.path.join(out, name + ".sorted"), "wb") as file:
            file.writelines(line + b"\n" for line in text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
