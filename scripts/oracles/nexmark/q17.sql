-- The prices of each auction and day.
SELECT auction, day_number(date_time), [count(*), count(*) FILTER (level(price) = 1), count(*) FILTER (level(price) = 2), count(*) FILTER (level(price) = 3)], min(price), max(price), sum(price)::BIGINT
FROM bids GROUP BY auction, day_number(date_time);
-- What the job wrote.
SELECT (row->0->0)::BIGINT, (row->0->1)::BIGINT, (row->1->'bids')::BIGINT[], (row->1->'min')::BIGINT, (row->1->'max')::BIGINT, (row->1->'sum')::BIGINT
FROM (SELECT row FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'JSON'}) GROUP BY row HAVING sum(adds(kind)) > 0);
