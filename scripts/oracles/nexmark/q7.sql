-- The highest bids of each ten seconds.
SELECT * FROM bids QUALIFY rank() OVER (PARTITION BY date_time // 10000 ORDER BY price DESC) = 1;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', channel: 'VARCHAR', url: 'VARCHAR', date_time: 'BIGINT', extra: 'VARCHAR'});
