-- The auctions with the most bids of each ten seconds, every two.
SELECT * FROM (
  SELECT (date_time // 2000 + k) * 2000 AS window_end, auction, count(*) AS bids
  FROM bids, range(1, 6) AS slides(k) GROUP BY ALL)
QUALIFY rank() OVER (PARTITION BY window_end ORDER BY bids DESC) = 1;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {window_end: 'BIGINT', auction: 'BIGINT', bids: 'BIGINT'});
