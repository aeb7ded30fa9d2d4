"""Compares what a Nexmark query wrote with what DuckDB finds in the same events: compare.py EVENTS QUERY RESULTS [QUERY RESULTS ...]

Each `qN.sql` has two statements with the same columns: the answer from the events, and what the job wrote. Rows are compared as
a set with counts.
"""

import pathlib
import sys

import duckdb

here = pathlib.Path(__file__).parent
events, pairs = sys.argv[1], sys.argv[2:]
db = duckdb.connect()
for statement in (here / "views.sql").read_text().replace("{events}", events).split(";\n"):
    if statement.strip():
        db.execute(statement)
print(f"{db.sql('SELECT count(*) FROM events').fetchall()[0][0]} events")
failed = []
for query, results in zip(pairs[::2], pairs[1::2]):
    statements = (here / f"{query}.sql").read_text().replace("{results}", results)
    expected, written = [part for part in statements.split(";\n") if part.strip()]
    db.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {expected}")
    db.execute(f"CREATE OR REPLACE TEMP TABLE written AS {written}")
    rows = db.sql("SELECT count(*) FROM expected").fetchall()[0][0]
    missing = db.sql("FROM expected EXCEPT ALL FROM written").fetchall()
    extra = db.sql("FROM written EXCEPT ALL FROM expected").fetchall()
    if missing or extra or rows == 0:
        failed.append(query)
        print(f"{query}: {rows} rows expected, {len(missing)} missing, {len(extra)} too many: {missing[:2]} {extra[:2]}")
    else:
        print(f"{query}: {rows} rows agree")
sys.exit(f"differ: {failed}" if failed else 0)
