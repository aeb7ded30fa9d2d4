#!/usr/bin/env python3
"""delays.py DATA OUT: the results of the example `delays`, computed at once from the same files without Millpond.

Writes OUT/<result>.sorted, one JSON object a line, sorted by bytes. Needs nothing but Python.
"""
import bisect
import collections
import csv
import datetime
import json
import os
import sys

HOUR = 60
BOUND = 20 * HOUR
REST = 8 * HOUR
UTC = datetime.timezone.utc


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def minutes(time_hour):
    """Minutes since 1970."""
    time = datetime.datetime.strptime(time_hour, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int(time.timestamp()) // 60


def text(minute):
    return datetime.datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")


def real(value):
    return None if value == "NA" else float(value)


def departures(data):
    """Those that are punctual, and those that are late, in the order of the file."""
    punctual, late, newest = [], [], None
    for row in rows(os.path.join(data, "flights.csv")):
        if row["dep_delay"] == "NA":
            continue
        delay = int(row["dep_delay"])
        departure = {
            "at": minutes(row["time_hour"]) + int(row["minute"]) + delay,
            "delay": delay,
            "label": f"{row['carrier']}{int(row['flight'])} {row['origin']}-{row['dest']}",
            "tailnum": None if row["tailnum"] == "NA" else row["tailnum"],
            "origin": row["origin"],
            "dest": row["dest"],
        }
        if newest is not None and departure["at"] < newest - BOUND:
            late.append(departure)
            continue
        newest = departure["at"] if newest is None else max(newest, departure["at"])
        punctual.append(departure)
    return punctual, late


def windows(punctual, size, slide):
    delays = collections.defaultdict(list)
    for departure in punctual:
        start = departure["at"] // slide * slide
        while start > departure["at"] - size:
            delays[departure["origin"], start].append(departure["delay"])
            start -= slide
    for (origin, start), values in delays.items():
        yield {"origin": origin, "from": text(start), "to": text(start + size), "departures": len(values),
               "mean_minutes": sum(values) / len(values), "worst_minutes": max(values)}


def rotations(punctual):
    by_aircraft = collections.defaultdict(list)
    for departure in punctual:
        if departure["tailnum"] is not None:
            route = f"{departure['origin']}-{departure['dest']}"
            by_aircraft[departure["tailnum"]].append((departure["at"], departure["delay"], route))
    for tailnum, legs in by_aircraft.items():
        legs.sort()
        begin = 0
        for end in range(1, len(legs) + 1):
            if end < len(legs) and legs[end][0] - legs[end - 1][0] <= REST:
                continue
            rotation = legs[begin:end]
            yield {"tailnum": tailnum, "from": text(rotation[0][0]), "to": text(rotation[-1][0]),
                   "legs": [leg[2] for leg in rotation], "delay_minutes": sum(leg[1] for leg in rotation)}
            begin = end


def with_weather(punctual, data):
    times, observations = collections.defaultdict(list), collections.defaultdict(list)
    for row in rows(os.path.join(data, "weather.csv")):
        times[row["origin"]].append(minutes(row["time_hour"]))
        observations[row["origin"]].append(row)
    for departure in punctual:
        found = bisect.bisect_right(times[departure["origin"]], departure["at"]) - 1
        row = observations[departure["origin"]][found] if found >= 0 else None
        yield {"flight": departure["label"], "departed": text(departure["at"]), "delay_minutes": departure["delay"],
               "observed": text(times[departure["origin"]][found]) if row else None,
               "temperature": real(row["temp"]) if row else None,
               "wind_speed": real(row["wind_speed"]) if row else None,
               "precipitation": real(row["precip"]) if row else None,
               "visibility": real(row["visib"]) if row else None}


def main(data, out):
    punctual, late = departures(data)
    results = {
        "hourly": windows(punctual, HOUR, HOUR),
        "sliding": windows(punctual, 3 * HOUR, HOUR // 2),
        "rotations": rotations(punctual),
        "with-weather": with_weather(punctual, data),
        "late": ({"departed_ms": one["at"] * 60_000, "delay_minutes": one["delay"], "label": one["label"],
                  "tailnum": one["tailnum"], "origin": one["origin"], "dest": one["dest"]} for one in late),
        "too-late": (),
    }
    os.makedirs(out, exist_ok=True)
    for name, lines in results.items():
        found = sorted(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() for line in lines)
        with open(os.path.join(out, name + ".sorted"), "wb") as file:
            file.writelines(line + b"\n" for line in found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
