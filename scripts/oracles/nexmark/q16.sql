-- The same of each channel and day.
SELECT channel, day_number(date_time), [count(*), count(*) FILTER (level(price) = 1), count(*) FILTER (level(price) = 2), count(*) FILTER (level(price) = 3)], [count(DISTINCT bidder), count(DISTINCT bidder) FILTER (level(price) = 1), count(DISTINCT bidder) FILTER (level(price) = 2), count(DISTINCT bidder) FILTER (level(price) = 3)], [count(DISTINCT auction), count(DISTINCT auction) FILTER (level(price) = 1), count(DISTINCT auction) FILTER (level(price) = 2), count(DISTINCT auction) FILTER (level(price) = 3)], max(date_time % 86400000 // 60000) FROM bids GROUP BY channel, day_number(date_time);
-- What the job wrote.
SELECT row->0->>0, (row->0->1)::BIGINT, (row->1->'bids')::BIGINT[], (row->1->'bidders')::BIGINT[], (row->1->'auctions')::BIGINT[], (row->1->'last_minute')::BIGINT
FROM (SELECT row FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'JSON'}) GROUP BY row HAVING sum(adds(kind)) > 0);
